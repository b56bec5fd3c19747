// A block of kRows by kColumns sums, each with kLanes partial sums along k. With AVX-512 all of
// them are in registers; with AVX2 those of one or two rows are, and more rows are slower than they
// could be. Each row of the weight is read once for all rows of the input that lie in the
// second-level cache.

#include "kernels/cpu/products/narrow_weight.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

constexpr int64_t kLanes = 16, kMostRows = 6, kMostColumns = 4;
constexpr int64_t kInputBytes = 1 << 20;  // Half of a second-level cache of 2024.

using Floats [[gnu::vector_size(64), gnu::aligned(4), gnu::may_alias]] = float;
using Words [[gnu::vector_size(64)]] = uint32_t;
using Halves [[gnu::vector_size(32), gnu::aligned(2), gnu::may_alias]] = uint16_t;

[[gnu::always_inline]] inline float Sum(const Floats& lanes) {
  float sums[kLanes];
  std::memcpy(sums, &lanes, sizeof(sums));
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

struct Operands {
  const float* x;     // [M, K]
  const bf16* w;      // [N, K]
  const float* bias;  // [N], or null
  float* y;           // [M, N]
  int64_t n, k;
  bool add;
};

template <int kRows, int kColumns>
[[gnu::always_inline]] inline void Block(const Operands& of, int64_t row, int64_t column) {
  const float* const x = of.x + row * of.k;
  const bf16* const w = of.w + column * of.k;
  Floats sum[kRows][kColumns] = {};
  int64_t k = 0;
  for (; k + kLanes <= of.k; k += kLanes) {
    Floats wide[kColumns];
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      const auto narrow = *reinterpret_cast<const Halves*>(w + c * of.k + k);
      wide[c] = Floats(__builtin_convertvector(narrow, Words) << 16);
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const auto in = *reinterpret_cast<const Floats*>(x + r * of.k + k);
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) sum[r][c] += in * wide[c];
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      float total = Sum(sum[r][c]);
      for (int64_t i = k; i < of.k; ++i) total += x[r * of.k + i] * float(w[c * of.k + i]);
      if (of.bias != nullptr) total += of.bias[column + c];
      float& y = of.y[(row + r) * of.n + column + c];
      y = of.add ? y + total : total;
    }
  }
}

template <int kColumns>
[[gnu::always_inline]] inline void Rows(const Operands& of, int64_t begin, int64_t end,
                                        int64_t column) {
  int64_t row = begin;
  for (; row + kMostRows <= end; row += kMostRows) Block<kMostRows, kColumns>(of, row, column);
  for (; row + 2 <= end; row += 2) Block<2, kColumns>(of, row, column);
  for (; row < end; ++row) Block<1, kColumns>(of, row, column);
}

}  // namespace

void NarrowWeightMatMul(Exec& exec, const MatMulArgs& args) {
  const MatMulShape shape = ShapeOf(args);
  const Operands of{.x = args.a.as<float>(),
                    .w = args.b.as<bf16>(),
                    .bias = args.bias.data != nullptr ? args.bias.as<float>() : nullptr,
                    .y = args.c.as<float>(),
                    .n = shape.n,
                    .k = shape.k,
                    .add = args.write == Write::kAdd};
  const int64_t fit = kInputBytes / (shape.k * int64_t(sizeof(float))) / kMostRows * kMostRows;
  const int64_t rows = std::max(kMostRows, fit);
  ParallelRanges(exec, shape.n, shape.m * shape.k, kLanes, [=](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < shape.m; row += rows) {
      const int64_t last = std::min(shape.m, row + rows);
      int64_t column = begin;
      for (; column + kMostColumns <= end; column += kMostColumns) {
        Rows<kMostColumns>(of, row, last, column);
      }
      for (; column < end; ++column) Rows<1>(of, row, last, column);
    }
  });
}

}  // namespace trainyard::cpu
