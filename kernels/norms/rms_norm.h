// Root-mean-square normalisation over the last dim, with a learned gain. Normalises x, or the sum
// of x and addend. The sum is then also an output (residual stream and branch, in one pass over
// memory).
//
//   h       = x, or sum = x + addend, rounded as stored
//   rstd[t] = 1 / sqrt(mean_d h[t,d]^2 + eps)
//   y[t,d]  = h[t,d] rstd[t] g[d]      g = gain + gain_offset
//
//   dh[t,d]  = rstd[t] (g[d] dy[t,d] - h[t,d] rstd[t]^2 mean_e(dy[t,e] g[e] h[t,e]))
//              + dsum[t,d], if h is used elsewhere; dh is the gradient of x and of addend
//   dgain[d] = sum_t dy[t,d] h[t,d] rstd[t]
//
// A zero-centred gain is stored less 1, which keeps more of its digits in bf16: gain_offset = 1.
//
// Source: Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4 (eps added under the root).
// Letters: T rows (tokens on this rank), D width. Sums are taken in f32 (f64 when x is f64).
// Bitwise deterministic, on the CPU for any thread count.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct RmsNormForwardArgs {
  ConstTensor x;            // [T, D]  f64 | f32 | bf16
  ConstTensor gain;         // [D]     dtype of x
  double eps;               // > 0
  Tensor y;                 // [T, D]  out, dtype of x; may be x or addend
  Tensor rstd;              // [T]     out, f32 (f64 when x is f64); kept for backward
  ConstTensor addend = {};  // [T, D]  dtype of x; absent when its data is null
  Tensor sum = {};          // [T, D]  out, the same; may be x or addend, but not y
  double gain_offset = 0;
};

struct RmsNormBackwardArgs {
  ConstTensor dy;         // [T, D]  dtype of x
  ConstTensor x;          // [T, D]  h: the forward input, or sum
  ConstTensor gain;       // [D]
  ConstTensor rstd;       // [T]     the forward output
  Tensor dx;              // [T, D]  out, dtype of x, overwritten; may be dsum, but neither dy nor x
  Tensor dgain;           // [D]     in/out, f32 (f64 when x is f64)
  Write write;            // of dgain
  ConstTensor dsum = {};  // [T, D]  dtype of x; absent when its data is null
  double gain_offset = 0;  // the forward argument
};

inline void Check(const RmsNormForwardArgs& args) {
  const int64_t d = ExpectColumns("rms_norm x", args.x), t = args.x.shape.rows();
  ExpectFloat("rms_norm x", args.x);
  ExpectElements("rms_norm gain", args.gain, args.x.dtype, d);
  CHECK(args.eps > 0) << "rms_norm eps: " << args.eps;
  ExpectMatrix("rms_norm y", args.y, args.x.dtype, t, d);
  ExpectElements("rms_norm rstd", args.rstd, AccumulateOfDType(args.x.dtype), t);
  if (args.addend.data == nullptr) return;
  ExpectMatrix("rms_norm addend", args.addend, args.x.dtype, t, d);
  ExpectMatrix("rms_norm sum", args.sum, args.x.dtype, t, d);
  CHECK(args.sum.data != args.y.data) << "rms_norm sum: in the memory of y";
}

inline void Check(const RmsNormBackwardArgs& args) {
  const int64_t d = ExpectColumns("rms_norm x", args.x), t = args.x.shape.rows();
  const DType dtype = args.x.dtype, accumulate = AccumulateOfDType(dtype);
  ExpectFloat("rms_norm x", args.x);
  ExpectMatrix("rms_norm dy", args.dy, dtype, t, d);
  ExpectElements("rms_norm gain", args.gain, dtype, d);
  ExpectElements("rms_norm rstd", args.rstd, accumulate, t);
  ExpectMatrix("rms_norm dx", args.dx, dtype, t, d);
  ExpectElements("rms_norm dgain", args.dgain, accumulate, d);
  if (args.dsum.data != nullptr) ExpectMatrix("rms_norm dsum", args.dsum, dtype, t, d);
}

}  // namespace trainyard
