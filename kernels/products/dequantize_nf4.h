// The numbers of rows of a tensor in NF4 (kernels/device/nf4.h), for a product that reads them:
//
//   b        = first_block + n * row_blocks + k / 64           the block's number in the tensor
//   scale    = map[scales[n, k / 64]] * groups[b / 256] + groups[G]
//   y[n,k]   = value[code of (n, k)] * scale
//
// The rows may be a part of the tensor's rows, and a part of its columns. Letters: N rows, K
// columns of the part, G groups of the whole tensor. Deterministic; every backend has the same
// bits.

#pragma once

#include "kernels/device/expect.h"
#include "kernels/device/nf4.h"

namespace trainyard {

struct DequantizeNf4Args {
  ConstTensor codes;    // [N, K / 2]  u8
  ConstTensor scales;   // [N, K / 64]  u8
  ConstTensor groups;   // [G + 1]  f32: of the groups, and the mean
  int64_t first_block;  // Of the first row.
  int64_t row_blocks;   // Blocks of a row of the whole tensor.
  Tensor y;             // [N, K]  f64 | f32 | bf16, out
};

inline void Check(const DequantizeNf4Args& args) {
  ExpectFloat("dequantize_nf4 y", args.y);
  const int64_t k = ExpectColumns("dequantize_nf4 y", args.y), n = args.y.shape.rows();
  CHECK(k % kNf4Block == 0) << "dequantize_nf4 y: wanted rows of whole blocks of " << kNf4Block
                            << ", got " << args.y.shape;
  const int64_t blocks = k / kNf4Block;
  ExpectMatrix("dequantize_nf4 codes", args.codes, DType::kU8, n, k / kNf4PerByte);
  ExpectMatrix("dequantize_nf4 scales", args.scales, DType::kU8, n, blocks);
  CHECK(args.first_block >= 0 && args.row_blocks >= blocks)
      << "dequantize_nf4: " << blocks << " blocks of a row of " << args.row_blocks << ", from "
      << args.first_block;
  const int64_t last = args.first_block + (n - 1) * args.row_blocks + blocks - 1;
  const int64_t groups = ExpectColumns("dequantize_nf4 groups", args.groups) - 1;
  ExpectElements("dequantize_nf4 groups", args.groups, DType::kF32, groups + 1);
  CHECK(last / kNf4Group < groups) << "dequantize_nf4 groups: wanted one for block " << last
                                   << ", got " << groups << " groups of " << kNf4Group;
}

}  // namespace trainyard
