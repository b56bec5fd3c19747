// The block of c in registers is 8 rows by 2 vectors of 64 bytes with AVX-512; 16 of its 32
// registers hide the latency of two multiply-adds per cycle. With AVX2 it is 4 rows by 2 vectors of
// 32 bytes. Bound by the multiply-add units while b stays in the first-level cache.

#include "kernels/cpu/products/tile_product.h"

#include "kernels/cpu/isa.h"

namespace trainyard::cpu {
namespace {

template <typename A, int kBytes>
struct VectorOf {
  // Aligned like a scalar, because rows of tiles may begin anywhere.
  using type [[gnu::vector_size(kBytes), gnu::aligned(sizeof(A)), gnu::may_alias]] = A;
  static constexpr int kLanes = kBytes / int(sizeof(A));
};

template <int kBytes, int kRows, int kVectors, typename A>
[[gnu::always_inline]] inline void Block(const TileProductArgs<A>& t, int64_t i, int64_t j) {
  using Vector = typename VectorOf<A, kBytes>::type;
  constexpr int kLanes = VectorOf<A, kBytes>::kLanes;
  Vector sum[kRows][kVectors] = {};
  const A* a = t.a + i * t.a_row;
  const A* b = t.b + j;
  for (int64_t k = 0; k < t.k; ++k, a += t.a_column, b += t.b_row) {
    Vector bk[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) bk[v] = *reinterpret_cast<const Vector*>(b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const A ak = a[r * t.a_row];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] += ak * bk[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      auto* c = reinterpret_cast<Vector*>(t.c + (i + r) * t.c_row + j + v * kLanes);
      *c = t.add ? *c + sum[r][v] : sum[r][v];
    }
  }
}

template <int kBytes, int kRows, typename A>
[[gnu::always_inline]] inline void Columns(const TileProductArgs<A>& t, int64_t i) {
  constexpr int kLanes = VectorOf<A, kBytes>::kLanes;
  int64_t j = 0;
  for (; j + 2 * kLanes <= t.n; j += 2 * kLanes) Block<kBytes, kRows, 2>(t, i, j);
  for (; j < t.n; j += kLanes) Block<kBytes, kRows, 1>(t, i, j);
}

template <int kBytes, typename A>
[[gnu::always_inline]] inline void Rows(const TileProductArgs<A>& t) {
  int64_t i = 0;
  if constexpr (kBytes == 64) {
    for (; i + 8 <= t.m; i += 8) Columns<kBytes, 8>(t, i);
  }
  for (; i + 4 <= t.m; i += 4) Columns<kBytes, 4>(t, i);
  for (; i < t.m; ++i) Columns<kBytes, 1>(t, i);
}

template <typename A>
void Avx2(const TileProductArgs<A>& t) {
  Rows<32>(t);
}

template <typename A>
TRAINYARD_AVX512 void Avx512(const TileProductArgs<A>& t) {
  Rows<64>(t);
}

template <typename A>
void Dispatch(const TileProductArgs<A>& t) {
  HasAvx512() ? Avx512(t) : Avx2(t);
}

}  // namespace

void TileProduct(const TileProductArgs<float>& args) { Dispatch(args); }
void TileProduct(const TileProductArgs<double>& args) { Dispatch(args); }

}  // namespace trainyard::cpu
