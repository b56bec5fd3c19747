#include "kernels/products/quantize.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/context.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

// Raises most[j] to the greatest absolute value of the row's numbers in block j.
template <typename T, typename A>
void RaiseByRow(const T* row, int64_t columns, int64_t of_block, A* most) {
  if (of_block == 1) {
#pragma omp simd
    for (int64_t c = 0; c < columns; ++c) most[c] = std::max(most[c], std::abs(A(row[c])));
    return;
  }
  for (int64_t begin = 0; begin < columns; begin += of_block, ++most) {
    const int64_t end = std::min(columns, begin + of_block);
    A greatest = *most;
#pragma omp simd reduction(max : greatest)
    for (int64_t c = begin; c < end; ++c) greatest = std::max(greatest, std::abs(A(row[c])));
    *most = greatest;
  }
}

// The rows of a block are divided among threads if there are fewer rows of blocks than threads.
template <typename T>
void FindAmax(Exec& exec, const AmaxArgs& args) {
  using A = Accumulate<T>;
  const int64_t rows = args.x.shape.rows(), columns = args.x.shape.back();
  const ScaleBlock block = args.block.In(args.x.shape);
  const int64_t bands = args.block.ScalesOf(args.x.shape)[0];
  const int64_t scales = args.block.ScalesOf(args.x.shape)[1];
  const int64_t pieces = std::clamp<int64_t>(exec.threads / bands, 1, block.rows);
  A* const found = reinterpret_cast<A*>(
      ContextOf(exec).shared.Reserve(size_t(bands * pieces * scales) * sizeof(A)));
  const T* const x = args.x.as<T>();
  ParallelRows(exec, bands * pieces, block.rows * columns / pieces, [=](int64_t from, int64_t to) {
    for (int64_t task = from; task < to; ++task) {
      A* const most = found + task * scales;
      std::fill_n(most, scales, A(0));
      const int64_t band = task / pieces, piece = task % pieces;
      const int64_t first = band * block.rows, n = std::min(block.rows, rows - first);
      for (int64_t r = first + n * piece / pieces; r < first + n * (piece + 1) / pieces; ++r) {
        RaiseByRow(x + r * columns, columns, block.columns, most);
      }
    }
  });
  A* const amax = args.amax.as<A>();
  for (int64_t i = 0; i < bands * scales; ++i) {
    const A* const of_pieces = found + i / scales * pieces * scales + i % scales;
    amax[i] = of_pieces[0];
    for (int64_t p = 1; p < pieces; ++p) amax[i] = std::max(amax[i], of_pieces[p * scales]);
  }
}

// What numbers of at most `amax` are multiplied by.
template <typename A>
A FactorFor(A amax, A largest) {
  constexpr A kLeast = 0x1p-100f;  // So that the factor is finite.
  return amax == 0 ? A(1) : largest / std::max(amax, kLeast);
}

constexpr int64_t kTile = 64;  // Rows, and columns, that are rounded at a time.

// Writes the transpose of a tile, whose rows are kTile apart. Rows of y are `stride` apart.
void StoreTransposed(const uint8_t* tile, int64_t rows, int64_t columns, uint8_t* y,
                     int64_t stride) {
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) y[c * stride + r] = tile[r * kTile + c];
  }
}

template <typename Format, typename T>
void Round(Exec& exec, const QuantizeArgs& args) {
  using A = Accumulate<T>;
  constexpr A kLargest = Format::kLargest;
  const int64_t rows = args.x.shape.rows(), columns = args.x.shape.back();
  const ScaleBlock block = args.block.In(args.x.shape);
  const Shape shape = args.block.ScalesOf(args.x.shape);
  const int64_t per_row = shape[1];
  const A* amax = args.amax.as<A>();
  const A greatest = *std::max_element(amax, amax + args.amax.elements());
  if (shape.elements() == 1) amax = &greatest;
  A* const scales = args.scales.as<A>();
  for (int64_t i = 0; i < shape.elements(); ++i) scales[i] = 1 / FactorFor(amax[i], kLargest);
  const T* const x = args.x.as<T>();
  uint8_t* const y = static_cast<uint8_t*>(args.y.data);
  uint8_t* const by_columns = static_cast<uint8_t*>(args.by_columns.data);
  // Rounds columns [from, to) of row r.
  const auto round = [=](int64_t r, int64_t from, int64_t to, uint8_t* out) {
    const A* const of_row = amax + r / block.rows * per_row;
    const T* const in = x + r * columns;
    for (int64_t begin = from; begin < to;) {
      const int64_t end = std::min(to, begin / block.columns * block.columns + block.columns);
      const A factor = FactorFor(of_row[begin / block.columns], kLargest);
#pragma omp simd
      for (int64_t c = begin; c < end; ++c) out[c - from] = RoundTo<Format>(A(in[c]) * factor);
      begin = end;
    }
  };
  if (by_columns == nullptr) {
    return ParallelRows(exec, rows, columns, [=](int64_t from, int64_t to) {
      for (int64_t r = from; r < to; ++r) round(r, 0, columns, y + r * columns);
    });
  }
  const int64_t bands = (rows + kTile - 1) / kTile;
  ParallelRows(exec, bands, kTile * columns, [=](int64_t from, int64_t to) {
    uint8_t tile[kTile * kTile];
    for (int64_t band = from; band < to; ++band) {
      const int64_t first = band * kTile, height = std::min(kTile, rows - first);
      for (int64_t begin = 0; begin < columns; begin += kTile) {
        const int64_t width = std::min(kTile, columns - begin);
        for (int64_t r = 0; r < height; ++r) {
          round(first + r, begin, begin + width, tile + r * kTile);
          if (y == nullptr) continue;
          std::copy_n(tile + r * kTile, width, y + (first + r) * columns + begin);
        }
        StoreTransposed(tile, height, width, by_columns + begin * rows + first, rows);
      }
    }
  });
}

}  // namespace

void Amax(Exec& exec, const AmaxArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { FindAmax<decltype(scalar)>(exec, args); });
}

void Quantize(Exec& exec, const QuantizeArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    const DType narrow = args.y.data == nullptr ? args.by_columns.dtype : args.y.dtype;
    DispatchNarrow(narrow,
                   [&](auto format) { Round<decltype(format), decltype(scalar)>(exec, args); });
  });
}

}  // namespace trainyard::cpu
