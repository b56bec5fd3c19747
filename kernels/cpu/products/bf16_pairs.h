// Matrix products of bf16 with AVX512_BF16: two multiply-adds in the place of one of f32, summed in
// f32. Operands hold two neighbouring values of the summed dimension together.

#pragma once

#include "kernels/cpu/products/tile_product.h"
#include "kernels/device/dtype.h"

namespace trainyard::cpu {

// Whether this CPU has AVX512_BF16. If not, no other function here may be called.
bool HasBf16Pairs();

// Two neighbours in the summed dimension. Also a view of two bf16.
struct [[gnu::may_alias]] Bf16Pair {
  uint32_t bits = 0;

  Bf16Pair() = default;
  Bf16Pair(bf16 first, bf16 second) : bits(first.bits | uint32_t{second.bits} << 16) {}
};

// As in tile_product.h; k counts pairs.
void TileProduct(const TileProductArgs<Bf16Pair, float>& args);

// Convert [rows, columns] to pairs of bf16; columns must be a multiple of kTileLanes.
//   along:  to[r, c/2]  = {from[r, c], from[r, c+1]}
//   across: to[r/2, c]  = {from[r, c], from[r+1, c]}, with a row of zeroes if rows is odd
void PairAlong(const float* from, int64_t rows, int64_t columns, Bf16Pair* to);
void PairAcross(const float* from, int64_t rows, int64_t columns, Bf16Pair* to);
void PairAcross(const bf16* from, int64_t rows, int64_t columns, Bf16Pair* to);

// to[c, r] = from[r, c], and zeroes for r >= rows.
struct TransposePairsArgs {
  int64_t rows;
  int64_t columns;
  const Bf16Pair* from;
  int64_t from_row;
  Bf16Pair* to;
  int64_t to_row;  // at least rows, a multiple of kTileLanes; `to` is aligned to 64 bytes
};
void TransposePairs(const TransposePairsArgs& args);

}  // namespace trainyard::cpu
