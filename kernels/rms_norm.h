// Root-mean-square normalisation over the last dim, with a learned gain.
//
//   rstd[t] = 1 / sqrt(mean_d x[t,d]^2 + eps)
//   y[t,d]  = x[t,d] rstd[t] gain[d]
//
//   dx[t,d]  = rstd[t] (gain[d] dy[t,d] - x[t,d] rstd[t]^2 mean_e(dy[t,e] gain[e] x[t,e]))
//   dgain[d] = sum_t dy[t,d] x[t,d] rstd[t]
//
// Source: Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4 (eps added under the root).
// Letters: T rows (tokens on this rank), D width. Sums are taken in f32 (f64 when x is f64).
// Bitwise deterministic, on the CPU for any thread count.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct RmsNormForwardArgs {
  ConstTensor x;     // [T, D]  f64 | f32 | bf16
  ConstTensor gain;  // [D]     dtype of x
  double eps;        // > 0
  Tensor y;          // [T, D]  out, dtype of x; may be x
  Tensor rstd;       // [T]     out, f32 (f64 when x is f64); kept for backward
};

struct RmsNormBackwardArgs {
  ConstTensor dy;    // [T, D]  dtype of x
  ConstTensor x;     // [T, D]  the forward input
  ConstTensor gain;  // [D]
  ConstTensor rstd;  // [T]     the forward output
  Tensor dx;         // [T, D]  out, dtype of x, overwritten; may be neither dy nor x
  Tensor dgain;      // [D]     in/out, f32 (f64 when x is f64)
  Write write;       // of dgain
};

inline void Check(const RmsNormForwardArgs& args) {
  const int64_t d = ExpectColumns("rms_norm x", args.x), t = args.x.shape.rows();
  ExpectFloat("rms_norm x", args.x);
  ExpectElements("rms_norm gain", args.gain, args.x.dtype, d);
  CHECK(args.eps > 0) << "rms_norm eps: " << args.eps;
  ExpectMatrix("rms_norm y", args.y, args.x.dtype, t, d);
  ExpectElements("rms_norm rstd", args.rstd, AccumulateOfDType(args.x.dtype), t);
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
}

}  // namespace trainyard
