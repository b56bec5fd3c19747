// Matrix products of bf16 with AVX512_BF16: two multiply-adds where f32 has one, summed in f32.
// Operands hold the dimension that is summed over two values at a time.

#pragma once

#include "kernels/cpu/tile_product.h"
#include "kernels/device/dtype.h"

namespace trainyard::cpu {

// Whether this CPU has them; otherwise nothing else here may be called.
bool HasBf16Pairs();

// Neighbours in the dimension that is summed over; also a view of two bf16.
struct [[gnu::may_alias]] Bf16Pair {
  uint32_t bits = 0;

  Bf16Pair() = default;
  Bf16Pair(bf16 first, bf16 second) : bits(first.bits | uint32_t{second.bits} << 16) {}
};

// As tile_product.h says, where k counts pairs.
void TileProduct(const TileProductArgs<Bf16Pair, float>& args);

// [rows, columns] to bf16; columns is a multiple of kTileLanes.
//   along:  to[r, c/2]  = {from[r, c], from[r, c+1]}
//   across: to[r/2, c]  = {from[r, c], from[r+1, c]}, with a row of zeroes where rows is odd
void PairAlong(const float* from, int64_t rows, int64_t columns, Bf16Pair* to);
void PairAcross(const float* from, int64_t rows, int64_t columns, Bf16Pair* to);
void PairAcross(const bf16* from, int64_t rows, int64_t columns, Bf16Pair* to);

// to[c, r] = from[r, c], zeroes from row `rows` on.
struct TransposePairsArgs {
  int64_t rows;
  int64_t columns;
  const Bf16Pair* from;
  int64_t from_row;
  Bf16Pair* to;
  int64_t to_row;  // at least rows; a multiple of kTileLanes, and of 64 bytes where `to` lies
};
void TransposePairs(const TransposePairsArgs& args);

}  // namespace trainyard::cpu
