// The numbers of rows of a tensor in NF4 (kernels/device/nf4.h), for a product that reads them:
//
//   b        = first_block + n * row_blocks + k / 64           the block's number in the tensor
//   scale    = map[scales[n, k / 64]] * groups[b / 256] + groups[G]
//   y[n,k]   = value[code of (n, k)] * scale
//
// The rows may be a part of the tensor's rows, and a part of its columns. y may have some columns
// of these rows, from `column` on. The rows may also be those of a stack of tensors of one shape,
// which follow one another. Each has its own groups and mean: n is then the row in its tensor.
// Letters: N rows, K columns of the part, C those of y, G groups of a whole tensor, S tensors.
// Deterministic; every backend has the same bits.

#pragma once

#include <algorithm>

#include "kernels/device/expect.h"
#include "kernels/device/nf4_operand.h"

namespace trainyard {

struct DequantizeNf4Args {
  ConstTensor codes;    // [N, K / 2]  u8
  ConstTensor scales;   // [N, K / 64]  u8
  ConstTensor groups;   // [S, G + 1]  f32: of each tensor the groups, and the mean
  int64_t first_block;  // Of the first row; of the first one of each tensor of a stack.
  int64_t row_blocks;   // Blocks of a row of the whole tensor.
  Tensor y;             // [N, C]  f64 | f32 | bf16, out
  int64_t column = 0;   // The first column of y, in K. A multiple of 64.
  // Of a stack: the rows of each tensor, and which row of the stack is the first one of the part.
  int64_t tensor_rows = 0;  // 0: there is one tensor.
  int64_t row = 0;
};

inline void Check(const DequantizeNf4Args& args) {
  ExpectFloat("dequantize_nf4 y", args.y);
  const int64_t c = ExpectColumns("dequantize_nf4 y", args.y), n = args.y.shape.rows();
  const int64_t k = ExpectColumns("dequantize_nf4 codes", args.codes) * kNf4PerByte;
  CHECK(c % kNf4Block == 0 && args.column % kNf4Block == 0)
      << "dequantize_nf4 y: wanted rows of whole blocks of " << kNf4Block << ", got "
      << args.y.shape << " from column " << args.column;
  CHECK(args.column >= 0 && args.column + c <= k)
      << "dequantize_nf4 codes: wanted columns " << args.column << " to " << args.column + c
      << ", got " << k;
  const int64_t blocks = k / kNf4Block;
  ExpectMatrix("dequantize_nf4 codes", args.codes, DType::kU8, n, k / kNf4PerByte);
  ExpectMatrix("dequantize_nf4 scales", args.scales, DType::kU8, n, blocks);
  CHECK(args.first_block >= 0 && args.row_blocks >= blocks)
      << "dequantize_nf4: " << blocks << " blocks of a row of " << args.row_blocks << ", from "
      << args.first_block;
  const bool stack = args.tensor_rows > 0;
  const int64_t tensors = stack ? args.groups.shape.rows() : 1;
  const int64_t rows = stack ? args.tensor_rows : n;
  CHECK(args.tensor_rows >= 0 && args.row >= 0 && args.row + n <= (stack ? tensors * rows : n))
      << "dequantize_nf4: rows " << args.row << " to " << args.row + n << " of " << tensors
      << " tensors of " << args.tensor_rows << " rows";
  const int64_t last = args.first_block + (rows - 1) * args.row_blocks + blocks - 1;
  const int64_t groups = ExpectColumns("dequantize_nf4 groups", args.groups) - 1;
  ExpectElements("dequantize_nf4 groups", args.groups, DType::kF32, tensors * (groups + 1));
  CHECK(last / kNf4Group < groups) << "dequantize_nf4 groups: wanted one for block " << last
                                   << ", got " << groups << " groups of " << kNf4Group;
}

// Some rows and columns of a weight in NF4.
struct PartInNf4 {
  ConstTensor codes;  // Of the whole weight, as `operand`.
  Nf4Operand operand;
  int64_t row, column = 0;  // The first ones of the part.
};

// Calls f(DequantizeNf4Args) for each run of which the part has rows. Together the calls write all
// numbers of the part: y.
template <typename F>
void ForEachRun(const PartInNf4& part, const Tensor& y, const F& f) {
  const auto rows_of = [](const ConstTensor& matrix, int64_t begin, int64_t rows) {
    const int64_t columns = matrix.shape.back();
    const auto* const data = static_cast<const std::byte*>(matrix.data);
    return ConstTensor(data + begin * columns * int64_t(SizeOf(matrix.dtype)), matrix.dtype,
                       {rows, columns});
  };
  for (const Nf4Run& run : part.operand.runs) {
    const int64_t first = std::max(part.row, run.row);
    const int64_t last = std::min(part.row + y.shape.rows(), run.row + run.rows);
    if (first >= last) continue;
    const ConstTensor numbers = rows_of(y, first - part.row, last - first);
    f(DequantizeNf4Args{
        .codes = rows_of(part.codes, first, last - first),
        .scales = rows_of(part.operand.scales, first, last - first),
        .groups = {part.operand.groups.as<float>() + run.first_group, DType::kF32, {run.groups}},
        .first_block = run.first_block + (first - run.row) * run.row_blocks,
        .row_blocks = run.row_blocks,
        .y = Tensor{{const_cast<void*>(numbers.data), y.dtype, numbers.shape}},
        .column = part.column});
  }
}

}  // namespace trainyard
