// Layer normalisation over the last dim, with learned gain and bias. Normalises x, or the sum of x
// and addend. The sum is then also an output (residual stream and branch, in one pass over memory).
//
//   h       = x, or sum = x + addend, rounded as stored
//   mean[t] = mean_d h[t,d]      rstd[t] = 1 / sqrt(mean_d (h[t,d] - mean[t])^2 + eps)
//   hhat    = (h - mean) rstd    y[t,d]  = hhat[t,d] (gain[d] + gain_offset) + bias[d]
//
//   with g[t,d] = dy[t,d] (gain[d] + gain_offset):
//   dh[t,d]  = rstd[t] (g[t,d] - mean_e g[t,e] - hhat[t,d] mean_e(g[t,e] hhat[t,e]))
//              + dsum[t,d], if h is used elsewhere; dh is the gradient of x and of addend
//   dgain[d] = sum_t dy[t,d] hhat[t,d]          dbias[d] = sum_t dy[t,d]
//
// A zero-centred gain is stored less 1, which keeps more of its digits in bf16: gain_offset = 1.
//
// Source: Ba, Kiros & Hinton 2016, arXiv:1607.06450, eq. 3 and 4 (eps under the root).
// Letters: T rows, D width. Sums are taken in f32 (f64 when x is f64), the variance about the mean.
// Bitwise deterministic, on the CPU for any thread count.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct LayerNormForwardArgs {
  ConstTensor x;            // [T, D]  f64 | f32 | bf16
  ConstTensor gain;         // [D]     dtype of x
  ConstTensor bias;         // [D]     dtype of x
  double eps;               // > 0
  Tensor y;                 // [T, D]  out, dtype of x; may be x or addend
  Tensor mean;              // [T]     out, f32 (f64 when x is f64); kept for backward
  Tensor rstd;              // [T]     out, the same
  ConstTensor addend = {};  // [T, D]  dtype of x; absent when its data is null
  Tensor sum = {};          // [T, D]  out, the same; may be x or addend, but not y
  double gain_offset = 0;
};

struct LayerNormBackwardArgs {
  ConstTensor dy;         // [T, D]  dtype of x
  ConstTensor x;          // [T, D]  h: the forward input, or sum
  ConstTensor gain;       // [D]
  ConstTensor mean;       // [T]     the forward output
  ConstTensor rstd;       // [T]     the forward output
  Tensor dx;              // [T, D]  out, dtype of x, overwritten; may be dsum, but neither dy nor x
  Tensor dgain;           // [D]     in/out, f32 (f64 when x is f64)
  Tensor dbias;           // [D]     in/out, the same
  Write write;            // of dgain and dbias
  ConstTensor dsum = {};  // [T, D]  dtype of x; absent when its data is null
  double gain_offset = 0;  // the forward argument
};

inline void Check(const LayerNormForwardArgs& args) {
  const int64_t d = ExpectColumns("layer_norm x", args.x), t = args.x.shape.rows();
  const DType dtype = args.x.dtype, accumulate = AccumulateOfDType(dtype);
  ExpectFloat("layer_norm x", args.x);
  ExpectElements("layer_norm gain", args.gain, dtype, d);
  ExpectElements("layer_norm bias", args.bias, dtype, d);
  CHECK(args.eps > 0) << "layer_norm eps: " << args.eps;
  ExpectMatrix("layer_norm y", args.y, dtype, t, d);
  ExpectElements("layer_norm mean", args.mean, accumulate, t);
  ExpectElements("layer_norm rstd", args.rstd, accumulate, t);
  if (args.addend.data == nullptr) return;
  ExpectMatrix("layer_norm addend", args.addend, dtype, t, d);
  ExpectMatrix("layer_norm sum", args.sum, dtype, t, d);
  CHECK(args.sum.data != args.y.data) << "layer_norm sum: in the memory of y";
}

inline void Check(const LayerNormBackwardArgs& args) {
  const int64_t d = ExpectColumns("layer_norm x", args.x), t = args.x.shape.rows();
  const DType dtype = args.x.dtype, accumulate = AccumulateOfDType(dtype);
  ExpectFloat("layer_norm x", args.x);
  ExpectMatrix("layer_norm dy", args.dy, dtype, t, d);
  ExpectElements("layer_norm gain", args.gain, dtype, d);
  ExpectElements("layer_norm mean", args.mean, accumulate, t);
  ExpectElements("layer_norm rstd", args.rstd, accumulate, t);
  ExpectMatrix("layer_norm dx", args.dx, dtype, t, d);
  ExpectElements("layer_norm dgain", args.dgain, accumulate, d);
  ExpectElements("layer_norm dbias", args.dbias, accumulate, d);
  if (args.dsum.data != nullptr) ExpectMatrix("layer_norm dsum", args.dsum, dtype, t, d);
}

}  // namespace trainyard
