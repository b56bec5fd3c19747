// Adds a bias for each of the G groups that divide the rows (grouped_matmul.h), with or without a
// factor for each row. Group g has the rows [offsets[g], offsets[g+1]) and may be empty.
//
//   forward            y[r,n] += w[r] bias[g,n]                     for the rows r of each g
//   gradient           dbias[g,n] = (write == kAdd ? dbias[g,n] : 0) + sum_r w[r] dy[r,n]
//   factor's gradient  dw[r] += sum_n dy[r,n] bias[g,n]
//
// The factor is the weight of an expert's output (scaled_swiglu.h); the bias of the expert's second
// product must be weighted, too. Without a factor, w[r] is 1.
//
// Letters: R bound on the rows, G groups, N columns. The offsets are read when the kernel runs.
// Rows outside the groups are neither read nor written. Offsets that fall or leave [0, R] are a
// programmer error that names them. Computed in f32 (f64 for f64). Bitwise deterministic for given
// offsets and shape, on the CPU for any thread count.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct GroupedBiasForwardArgs {
  ConstTensor bias;     // [G, N]  f64 | f32 | bf16
  ConstTensor w = {};   // [R]     f32 (f64 when bias is f64); absent when its data is null
  ConstTensor offsets;  // [G+1]   i32
  Tensor y;             // [R, N]  in/out, dtype of bias; rounded once
};

struct GroupedBiasGradientArgs {
  ConstTensor dy;       // [R, N]  f64 | f32 | bf16
  ConstTensor w = {};   // [R]     the forward input; absent when its data is null
  ConstTensor offsets;  // [G+1]   the forward input
  Tensor dbias;         // [G, N]  in/out, f32 (f64 when dy is f64)
  Write write;          // kOverwrite: zero for a group without rows
};

struct GroupedBiasFactorGradientArgs {
  ConstTensor dy;       // [R, N]  dtype of bias
  ConstTensor bias;     // [G, N]  the forward input
  ConstTensor offsets;  // [G+1]   the forward input
  Tensor dw;            // [R]     in/out, f32 (f64 when bias is f64)
};

inline void ExpectGroupedBias(const ConstTensor& rows, const ConstTensor& bias,
                              const ConstTensor& offsets) {
  const int64_t n = ExpectColumns("grouped_bias rows", rows), g = offsets.elements() - 1;
  ExpectFloat("grouped_bias rows", rows);
  ExpectElements("grouped_bias offsets", offsets, DType::kI32, g + 1);
  ExpectMatrix("grouped_bias bias", bias, bias.dtype, g, n);
}

inline void ExpectFactor(const ConstTensor& w, const ConstTensor& rows) {
  if (w.data == nullptr) return;
  ExpectElements("grouped_bias w", w, AccumulateOfDType(rows.dtype), rows.shape.rows());
}

inline void Check(const GroupedBiasForwardArgs& args) {
  ExpectGroupedBias(args.y, args.bias, args.offsets);
  ExpectDType("grouped_bias bias", args.bias, {args.y.dtype});
  ExpectFactor(args.w, args.y);
}

inline void Check(const GroupedBiasGradientArgs& args) {
  ExpectGroupedBias(args.dy, args.dbias, args.offsets);
  ExpectDType("grouped_bias dbias", args.dbias, {AccumulateOfDType(args.dy.dtype)});
  ExpectFactor(args.w, args.dy);
}

inline void Check(const GroupedBiasFactorGradientArgs& args) {
  ExpectGroupedBias(args.dy, args.bias, args.offsets);
  ExpectDType("grouped_bias bias", args.bias, {args.dy.dtype});
  ExpectElements("grouped_bias dw", args.dw, AccumulateOfDType(args.dy.dtype),
                 args.dy.shape.rows());
}

}  // namespace trainyard
