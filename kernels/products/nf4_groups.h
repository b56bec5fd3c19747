// The products of groups with weights in NF4, part by part, for a device that multiplies several
// groups at once. A part is numbers in memory that the next part overwrites: the weights of some
// groups, or some columns of the result of one group, so that every sum is taken in one piece:
//
//   forward          y [R, n]  = x  [R, K] part^T   part [P, n, K] of n outputs of P groups
//   input gradient   dx [R, k] = dy [R, N] part     part [P, N, k] of k inputs of P groups
//
// Letters as in grouped_matmul.h.

#pragma once

#include <algorithm>

#include "kernels/products/dequantize_nf4.h"
#include "kernels/products/grouped_matmul.h"

namespace trainyard {

// The weights of all groups.
struct Nf4GroupWeights {
  ConstTensor codes;   // [G, N, K / 2]
  ConstTensor scales;  // [G, N, K / 64]
  ConstTensor groups;  // [G, S (groups + 1)]
  int64_t tensors;     // S
  bool forward;        // Otherwise for the input gradient.

  int64_t count() const { return codes.shape[0]; }
  int64_t outputs() const { return codes.shape[1]; }
  int64_t inputs() const { return codes.shape[2] * kNf4PerByte; }
  int64_t columns() const { return forward ? outputs() : inputs(); }
  int64_t summed() const { return forward ? inputs() : outputs(); }
};
inline Nf4GroupWeights Nf4WeightsOf(const GroupedMatMulForwardArgs& args) {
  return {args.weight, args.nf4_scales, args.nf4_groups, args.nf4_tensors, true};
}
inline Nf4GroupWeights Nf4WeightsOf(const GroupedMatMulInputGradientArgs& args) {
  return {args.weight, args.nf4_scales, args.nf4_groups, args.nf4_tensors, false};
}

// A part that has been made.
struct Nf4NumbersOfGroups {
  int64_t first, groups;   // Which groups.
  int64_t begin, columns;  // Which columns of the result.
  ConstTensor numbers;     // [groups, columns, K], or of the input gradient [groups, N, columns]
};

// Makes all parts, of at most `most`: several groups with all columns, or one. The columns of a
// part are a multiple of 64. `memory` has room for most.groups x most.columns x summed() numbers of
// its dtype. Calls dequantize(DequantizeNf4Args), and then multiply(Nf4NumbersOfGroups), for each
// part.
template <typename Dequantize, typename Multiply>
void MultiplyNf4Groups(const Nf4GroupWeights& of, const Nf4GroupPart& most, const Tensor& memory,
                       const Dequantize& dequantize, const Multiply& multiply) {
  CHECK(most.groups == 1 || most.columns == of.columns()) << "columns of several groups";
  CHECK(memory.elements() >= most.groups * most.columns * of.summed()) << memory.shape;
  const int64_t bytes = of.inputs() / kNf4PerByte, blocks = of.inputs() / kNf4Block;
  const int64_t of_tensor = of.groups.shape.back() / of.tensors;
  for (int64_t g = 0; g < of.count(); g += most.groups) {
    const int64_t count = std::min(most.groups, of.count() - g);
    for (int64_t begin = 0; begin < of.columns(); begin += most.columns) {
      const int64_t columns = std::min(most.columns, of.columns() - begin);
      const int64_t row = g * of.outputs() + (of.forward ? begin : 0);  // Of all groups' outputs.
      const int64_t rows = count * (of.forward ? columns : of.outputs());
      const int64_t width = of.forward ? of.inputs() : columns;
      dequantize(DequantizeNf4Args{
          .codes = {of.codes.as<uint8_t>() + row * bytes, DType::kU8, {rows, bytes}},
          .scales = {of.scales.as<uint8_t>() + row * blocks, DType::kU8, {rows, blocks}},
          .groups = {of.groups.data, DType::kF32, {of.count() * of.tensors, of_tensor}},
          .first_block = 0,
          .row_blocks = blocks,
          .y = Tensor{{memory.data, memory.dtype, {rows, width}}},
          .column = of.forward ? 0 : begin,
          .tensor_rows = of.outputs() / of.tensors,
          .row = row});
      multiply(
          Nf4NumbersOfGroups{.first = g,
                             .groups = count,
                             .begin = begin,
                             .columns = columns,
                             .numbers = {memory.data, memory.dtype, {count, rows / count, width}}});
    }
  }
}

}  // namespace trainyard
