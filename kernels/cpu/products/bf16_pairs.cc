// Bound by the multiply-add units, like tile_product.cc. Uses the same blocks: 8 rows by 2 vectors
// in registers.

#include "kernels/cpu/products/bf16_pairs.h"

#include <immintrin.h>

#include <algorithm>
#include <utility>

namespace trainyard::cpu {
namespace {

#define TRAINYARD_AVX512_BF16 \
  [[gnu::target("avx512f,avx512dq,avx512vl,avx512bw,avx512bf16,prefer-vector-width=512")]]

using Halves [[gnu::vector_size(32)]] = uint16_t;
using Words [[gnu::vector_size(64)]] = uint32_t;

template <int kRows, int kVectors>
[[gnu::always_inline]] TRAINYARD_AVX512_BF16 inline void Block(
    const TileProductArgs<Bf16Pair, float>& t, int64_t i, int64_t j) {
  __m512 sum[kRows][kVectors] = {};
  const Bf16Pair* a = t.a + i * t.a_row;
  const Bf16Pair* b = t.b + j;
  for (int64_t k = 0; k < t.k; ++k, a += t.a_column, b += t.b_row) {
    __m512bh bk[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) bk[v] = __m512bh(_mm512_loadu_si512(b + v * 16));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto ak = __m512bh(_mm512_set1_epi32(int32_t(a[r * t.a_row].bits)));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], ak, bk[v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* c = t.c + (i + r) * t.c_row + j + v * 16;
      _mm512_storeu_ps(c, t.add ? _mm512_loadu_ps(c) + sum[r][v] : sum[r][v]);
    }
  }
}

template <int kRows>
[[gnu::always_inline]] TRAINYARD_AVX512_BF16 inline void Columns(
    const TileProductArgs<Bf16Pair, float>& t, int64_t i) {
  int64_t j = 0;
  for (; j + 32 <= t.n; j += 32) Block<kRows, 2>(t, i, j);
  for (; j < t.n; j += 16) Block<kRows, 1>(t, i, j);
}

// Takes the elements of a whose index lacks (or has, if kHas) the bit kBit, next to those of b.
template <size_t kBit, bool kHas, size_t... j>
[[gnu::always_inline]] TRAINYARD_AVX512_BF16 inline Words Half(Words a, Words b,
                                                               std::index_sequence<j...>) {
  constexpr size_t kFrom = kHas ? kBit : 0;
  return __builtin_shufflevector(a, b, ((j & kBit ? 16 + j - kBit : j) + kFrom)...);
}

// One round of transposing 16 rows: exchanges the blocks of kBit by kBit that mirror each other.
template <size_t kBit>
[[gnu::always_inline]] TRAINYARD_AVX512_BF16 inline void Exchange(Words (&rows)[16]) {
  constexpr auto kColumns = std::make_index_sequence<16>();
#pragma GCC unroll 16
  for (size_t i = 0; i < 16; ++i) {
    if (i & kBit) continue;
    const Words a = rows[i], b = rows[i + kBit];
    rows[i] = Half<kBit, false>(a, b, kColumns);
    rows[i + kBit] = Half<kBit, true>(a, b, kColumns);
  }
}

TRAINYARD_AVX512_BF16 inline Words Load16(const float* from) {
  return __builtin_convertvector(Halves(_mm512_cvtneps_pbh(_mm512_loadu_ps(from))), Words);
}
TRAINYARD_AVX512_BF16 inline Words Load16(const bf16* from) {
  return __builtin_convertvector(Halves(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))),
                                 Words);
}

template <typename T>
[[gnu::always_inline]] TRAINYARD_AVX512_BF16 inline void Across(const T* from, int64_t rows,
                                                                int64_t columns, Bf16Pair* to) {
  for (int64_t r = 0; r < rows; r += 2) {
    for (int64_t c = 0; c < columns; c += 16, from += 16, to += 16) {
      const Words first = Load16(from);
      const Words second = r + 1 < rows ? Load16(from + columns) : Words{};
      _mm512_storeu_si512(to, __m512i(first | second << 16));
    }
    from += columns;
  }
}

}  // namespace

bool HasBf16Pairs() { return __builtin_cpu_supports("avx512bf16"); }

TRAINYARD_AVX512_BF16 void TileProduct(const TileProductArgs<Bf16Pair, float>& t) {
  int64_t i = 0;
  for (; i + 8 <= t.m; i += 8) Columns<8>(t, i);
  for (; i + 4 <= t.m; i += 4) Columns<4>(t, i);
  for (; i < t.m; ++i) Columns<1>(t, i);
}

TRAINYARD_AVX512_BF16 void PairAlong(const float* from, int64_t rows, int64_t columns,
                                     Bf16Pair* to) {
  auto* out = reinterpret_cast<bf16*>(to);
  for (int64_t e = 0; e < rows * columns; e += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + e),
                        __m256i(_mm512_cvtneps_pbh(_mm512_loadu_ps(from + e))));
  }
}

TRAINYARD_AVX512_BF16 void PairAcross(const float* from, int64_t rows, int64_t columns,
                                      Bf16Pair* to) {
  Across(from, rows, columns, to);
}

TRAINYARD_AVX512_BF16 void PairAcross(const bf16* from, int64_t rows, int64_t columns,
                                      Bf16Pair* to) {
  Across(from, rows, columns, to);
}

TRAINYARD_AVX512_BF16 void TransposePairs(const TransposePairsArgs& args) {
  for (int64_t c = 0; c < args.columns; c += 16) {
    const int64_t columns = std::min<int64_t>(16, args.columns - c);
    const auto mask = __mmask16((1u << columns) - 1);
    for (int64_t r = 0; r < args.to_row; r += 16) {
      const Bf16Pair* from = args.from + r * args.from_row + c;
      Words rows[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        rows[i] = r + i < args.rows
                      ? Words(_mm512_maskz_loadu_epi32(mask, from + i * args.from_row))
                      : Words{};
      }
      Exchange<8>(rows);
      Exchange<4>(rows);
      Exchange<2>(rows);
      Exchange<1>(rows);
      for (int64_t i = 0; i < columns; ++i) {
        _mm512_store_si512(args.to + (c + i) * args.to_row + r, __m512i(rows[i]));
      }
    }
  }
}

}  // namespace trainyard::cpu
