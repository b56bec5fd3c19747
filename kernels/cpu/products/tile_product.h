// A small matrix product on packed tiles, which attention and the blocked matrix product consist
// of. Compiled for AVX2 and for AVX-512; the CPU's type decides at run time.

#pragma once

#include <cstdint>

namespace trainyard::cpu {

// The number of columns of a tile must be a multiple of this.
inline constexpr int64_t kTileLanes = 16;

//   c[i,j] = (add ? c[i,j] : 0) + sum_k a[i a_row + k a_column] b[k b_row + j]
template <typename A, typename C = A>
struct TileProductArgs {
  int64_t m;
  int64_t n;  // a multiple of kTileLanes
  int64_t k;
  const A* a;
  int64_t a_row;
  int64_t a_column;
  const A* b;
  int64_t b_row;
  C* c;
  int64_t c_row;
  bool add;
};

void TileProduct(const TileProductArgs<float>& args);
void TileProduct(const TileProductArgs<double>& args);

}  // namespace trainyard::cpu
