// Layer normalisation over the last dim, with learned gain and bias.
//
//   mean[t] = mean_d x[t,d]      rstd[t] = 1 / sqrt(mean_d (x[t,d] - mean[t])^2 + eps)
//   xhat    = (x - mean) rstd    y[t,d]  = xhat[t,d] gain[d] + bias[d]
//
//   with g[t,d] = dy[t,d] gain[d]:
//   dx[t,d]  = rstd[t] (g[t,d] - mean_e g[t,e] - xhat[t,d] mean_e(g[t,e] xhat[t,e]))
//   dgain[d] = sum_t dy[t,d] xhat[t,d]          dbias[d] = sum_t dy[t,d]
//
// Source: Ba, Kiros & Hinton 2016, arXiv:1607.06450, eq. 3 and 4 (eps under the root).
// Letters: T rows, D width. Sums are taken in f32 (f64 when x is f64), the variance about the mean.
// Bitwise deterministic, on the CPU for any thread count.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct LayerNormForwardArgs {
  ConstTensor x;     // [T, D]  f64 | f32 | bf16
  ConstTensor gain;  // [D]     dtype of x
  ConstTensor bias;  // [D]     dtype of x
  double eps;        // > 0
  Tensor y;          // [T, D]  out, dtype of x; may be x
  Tensor mean;       // [T]     out, f32 (f64 when x is f64); kept for backward
  Tensor rstd;       // [T]     out, likewise
};

struct LayerNormBackwardArgs {
  ConstTensor dy;    // [T, D]  dtype of x
  ConstTensor x;     // [T, D]  the forward input
  ConstTensor gain;  // [D]
  ConstTensor mean;  // [T]     the forward output
  ConstTensor rstd;  // [T]     the forward output
  Tensor dx;         // [T, D]  out, dtype of x, overwritten; may be neither dy nor x
  Tensor dgain;      // [D]     in/out, f32 (f64 when x is f64)
  Tensor dbias;      // [D]     in/out, likewise
  Write write;       // of dgain and dbias
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
}

}  // namespace trainyard
