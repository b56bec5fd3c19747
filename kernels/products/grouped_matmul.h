// The three products of G linear layers that divide the rows. Group g has its own weight and the
// rows [offsets[g], offsets[g+1]), and may be empty.
//
//   forward          y[r,:]  = sum_k weight[g,:,k] x[r,k]              for the rows r of each g
//   input gradient   dx[r,:] = sum_n dy[r,n] weight[g,n,:]
//   weight gradient  dweight[g,n,k] = sum_r dy[r,n] x[r,k]
//
// With write == kAdd, the sum is added to what the output holds, and rounded once.
//
// Operands that were rounded to an 8-bit format (grouped_round.h) have scales. A number is then its
// value times the scale of its group. If the weight has scales for each group and column of the
// result, a number of the first operand has the scale of its row instead, and a number of the
// weight that of the result's column. The sum is multiplied by the scale of the first operand (x,
// or dy), then by that of the other, and then added and rounded.
//
// The weights may be in NF4 (kernels/device/nf4.h), for forward and for the input gradient: those
// of a group as S tensors of N / S rows, each with its own groups of blocks and mean. A part of
// them at a time becomes numbers of the other operand's dtype: on a CPU that of some columns of one
// group's product (nf4_parts.h), and on a GPU what Nf4GroupsOnGpu says (nf4_groups.h). The weights
// are never whole in memory, and each sum is that of one product with the whole weight.
//
// Letters: R bound on the rows, G groups, K inputs, N outputs. The offsets are read when the kernel
// runs. Rows outside the groups are neither read nor written. Offsets that fall or leave [0, R] are
// a programmer error that names them. Sums are taken in f32 (f64 for f64). Deterministic for given
// offsets, shape, thread count and device.

#pragma once

#include "kernels/device/expect.h"
#include "kernels/device/nf4.h"

namespace trainyard {

struct GroupedMatMulForwardArgs {
  ConstTensor x;        // [R, K]     f64 | f32 | bf16
  ConstTensor weight;   // [G, N, K]  dtype of x; in NF4 the codes, u8 [G, N, K / 2]
  ConstTensor offsets;  // [G+1]      i32
  Tensor y;             // [R, N]     in/out, dtype of x
  Write write = Write::kOverwrite;
  // f32 (f64 when x is f64). Both or none; absent when the data are null.
  ConstTensor x_scales = {};       // [G]    or [R]
  ConstTensor weight_scales = {};  // [G]    or [G, N]
  // If the weights are in NF4. Of each tensor the groups, of 256 blocks each, and then the mean.
  ConstTensor nf4_scales = {};  // [G, N, K / 64]  u8
  ConstTensor nf4_groups = {};  // [G, S (groups + 1)]  f32
  int64_t nf4_tensors = 1;      // S
};

struct GroupedMatMulInputGradientArgs {
  ConstTensor dy;       // [R, N]     f64 | f32 | bf16
  ConstTensor weight;   // [G, N, K]  dtype of dy; in NF4 the codes, u8 [G, N, K / 2]
  ConstTensor offsets;  // [G+1]      i32
  Tensor dx;            // [R, K]     in/out, dtype of dy
  Write write = Write::kOverwrite;
  // f32 (f64 when dy is f64). Both or none; absent when the data are null.
  ConstTensor dy_scales = {};                    // [G]    or [R]
  ConstTensor weight_scales = {};                // [G]    or [G, K]
  ConstTensor nf4_scales = {}, nf4_groups = {};  // As above.
  int64_t nf4_tensors = 1;
};

struct GroupedMatMulWeightGradientArgs {
  ConstTensor dy;              // [R, N]     f64 | f32 | bf16
  ConstTensor x;               // [R, K]     dtype of dy
  ConstTensor offsets;         // [G+1]      i32
  Tensor dweight;              // [G, N, K]  in/out, f32 (f64 when dy is f64)
  Write write;                 // kOverwrite: zero for a group without rows
  ConstTensor dy_scales = {};  // [G]    f32 (f64 when dy is f64); absent when its data is null
  ConstTensor x_scales = {};   // [G]    dtype of dy_scales; there if those are
};

inline bool IsInNf4(const GroupedMatMulForwardArgs& args) {
  return args.weight.dtype == DType::kU8;
}
inline bool IsInNf4(const GroupedMatMulInputGradientArgs& args) {
  return args.weight.dtype == DType::kU8;
}

// Checks [rows, outputs], [rows, inputs] and the weight between them, each element of which holds
// `per_element` numbers.
inline void ExpectGroups(const ConstTensor& in, const ConstTensor& out, const ConstTensor& weight,
                         const ConstTensor& offsets, int64_t per_element = 1) {
  const int64_t k = ExpectColumns("grouped_matmul inputs", in);
  const int64_t n = ExpectColumns("grouped_matmul outputs", out), g = offsets.elements() - 1;
  ExpectFloat("grouped_matmul inputs", in);
  ExpectMatrix("grouped_matmul outputs", out, in.dtype, in.shape.rows(), n);
  ExpectElements("grouped_matmul offsets", offsets, DType::kI32, g + 1);
  CHECK(k % per_element == 0 && weight.shape == Shape({g, n, k / per_element}))
      << "grouped_matmul weight: wanted [" << g << ", " << n << ", " << k / per_element << "], got "
      << weight.dtype << ' ' << weight.shape;
  ExpectData("grouped_matmul weight", weight);
}

// Checks the weights of a product: numbers of the dtype `of_numbers`, or in NF4.
template <typename Args>
void ExpectWeights(const Args& args, const ConstTensor& in, const ConstTensor& out,
                   DType of_numbers) {
  if (!IsInNf4(args)) {
    ExpectGroups(in, out, args.weight, args.offsets);
    return ExpectDType("grouped_matmul weight", args.weight, {of_numbers});
  }
  const int64_t k = ExpectColumns("grouped_matmul inputs", in), s = args.nf4_tensors;
  const int64_t n = ExpectColumns("grouped_matmul outputs", out);
  CHECK(k % kNf4Block == 0 && s > 0 && n % s == 0)
      << "grouped_matmul weight: NF4 is tensors of whole blocks of " << kNf4Block << ", got " << s
      << " of " << n << " outputs and " << k << " inputs";
  ExpectGroups(in, out, args.weight, args.offsets, kNf4PerByte);
  CHECK(args.weight_scales.data == nullptr) << "grouped_matmul: scales of a weight in NF4";
  const int64_t g = args.offsets.elements() - 1, blocks = n / s * (k / kNf4Block);
  ExpectMatrix("grouped_matmul nf4_scales", args.nf4_scales, DType::kU8, g * n, k / kNf4Block);
  ExpectMatrix("grouped_matmul nf4_groups", args.nf4_groups, DType::kF32, g,
               s * ((blocks + kNf4Group - 1) / kNf4Group + 1));
}

// Whether the operands have scales for each row, and for each column of the result.
inline bool HasLineScales(const ConstTensor& weight_scales) {
  return weight_scales.data != nullptr && weight_scales.shape.rank() == 2;
}

// Checks that the operands have scales for the rows of x or dy and the columns of `out`.
inline void ExpectLineScales(const ConstTensor& a_scales, const ConstTensor& b_scales,
                             const ConstTensor& out, const ConstTensor& offsets) {
  CHECK(a_scales.data != nullptr) << "grouped_matmul: scales of one operand";
  const DType dtype = AccumulateOfDType(out.dtype);
  ExpectElements("grouped_matmul scales of rows", a_scales, dtype, out.shape.rows());
  ExpectMatrix("grouped_matmul scales of columns", b_scales, dtype, offsets.elements() - 1,
               out.shape.back());
}

// Checks that both operands have a scale for each group, or none has.
inline void ExpectScales(const ConstTensor& a_scales, const ConstTensor& b_scales, DType operands,
                         const ConstTensor& offsets) {
  const bool scaled = a_scales.data != nullptr;
  CHECK(scaled == (b_scales.data != nullptr)) << "grouped_matmul: scales of one operand";
  if (!scaled) return;
  const int64_t groups = offsets.elements() - 1;
  ExpectElements("grouped_matmul scales", a_scales, AccumulateOfDType(operands), groups);
  ExpectElements("grouped_matmul scales", b_scales, AccumulateOfDType(operands), groups);
}

inline void Check(const GroupedMatMulForwardArgs& args) {
  ExpectWeights(args, args.x, args.y, args.x.dtype);
  if (HasLineScales(args.weight_scales)) {
    return ExpectLineScales(args.x_scales, args.weight_scales, args.y, args.offsets);
  }
  ExpectScales(args.x_scales, args.weight_scales, args.x.dtype, args.offsets);
}

inline void Check(const GroupedMatMulInputGradientArgs& args) {
  ExpectWeights(args, args.dx, args.dy, args.dy.dtype);
  if (HasLineScales(args.weight_scales)) {
    return ExpectLineScales(args.dy_scales, args.weight_scales, args.dx, args.offsets);
  }
  ExpectScales(args.dy_scales, args.weight_scales, args.dy.dtype, args.offsets);
}

inline void Check(const GroupedMatMulWeightGradientArgs& args) {
  ExpectGroups(args.x, args.dy, args.dweight, args.offsets);
  ExpectDType("grouped_matmul dweight", args.dweight, {AccumulateOfDType(args.dy.dtype)});
  ExpectScales(args.dy_scales, args.x_scales, args.dy.dtype, args.offsets);
}

}  // namespace trainyard
