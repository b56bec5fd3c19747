// Layer normalisation without a learned gain and bias. The result is scaled and shifted by rows
// that are computed from a condition of each sample (the adaLN of diffusion transformers).
//
//   s       = rows.sample_of(t)
//   mean[t] = mean_d x[t,d]      rstd[t] = 1 / sqrt(mean_d (x[t,d] - mean[t])^2 + eps)
//   xhat    = (x - mean) rstd    y[t,d]  = xhat[t,d] (1 + scale[s,d]) + shift[s,d]
//
//   with g[t,d] = dy[t,d] (1 + scale[s,d]):
//   dx[t,d]     = rstd[t] (g[t,d] - mean_e g[t,e] - xhat[t,d] mean_e(g[t,e] xhat[t,e]))
//   dshift[s,d] = sum over the sample's rows t of dy[t,d]
//   dscale[s,d] = sum over the sample's rows t of dy[t,d] xhat[t,d]
//
// Source: Peebles & Xie 2022, arXiv:2212.09748, section 3.2; norm: Ba, Kiros & Hinton 2016,
// arXiv:1607.06450, eq. 3 and 4 (eps under the root).
// Letters: T rows, B samples, D width. Sums are taken in f32 (f64 when x is f64). The variance is
// taken about the mean. The gradients of a sample without rows in x are zero. The results are
// bitwise deterministic; on the CPU they do not depend on the number of threads.

#pragma once

#include "kernels/device/sample_rows.h"

namespace trainyard {

struct AdaptiveNormForwardArgs {
  ConstTensor x;      // [T, D]  f64 | f32 | bf16
  ConstTensor shift;  // [B, D]  dtype of x
  ConstTensor scale;  // [B, D]  dtype of x
  SampleRows rows;
  double eps;   // > 0
  Tensor y;     // [T, D]  out, dtype of x; may be x
  Tensor mean;  // [T]     out, f32 (f64 when x is f64); kept for backward
  Tensor rstd;  // [T]     out, likewise
};

struct AdaptiveNormBackwardArgs {
  ConstTensor dy;     // [T, D]  dtype of x
  ConstTensor x;      // [T, D]  the forward input
  ConstTensor scale;  // [B, D]  the forward input
  ConstTensor mean;   // [T]     the forward output
  ConstTensor rstd;   // [T]     the forward output
  SampleRows rows;
  Tensor dx;      // [T, D]  out, dtype of x, overwritten; may be neither dy nor x
  Tensor dshift;  // [B, D]  out, dtype of x, overwritten
  Tensor dscale;  // [B, D]  out, likewise
};

inline void Check(const AdaptiveNormForwardArgs& args) {
  const int64_t d = ExpectColumns("adaptive_norm x", args.x), t = args.x.shape.rows();
  const DType accumulate = AccumulateOfDType(args.x.dtype);
  ExpectFloat("adaptive_norm x", args.x);
  ExpectSamples("adaptive_norm shift", args.x, args.shift, args.rows);
  ExpectMatrix("adaptive_norm scale", args.scale, args.x.dtype, args.shift.shape.rows(), d);
  CHECK(args.eps > 0) << "adaptive_norm eps: " << args.eps;
  ExpectMatrix("adaptive_norm y", args.y, args.x.dtype, t, d);
  ExpectElements("adaptive_norm mean", args.mean, accumulate, t);
  ExpectElements("adaptive_norm rstd", args.rstd, accumulate, t);
}

inline void Check(const AdaptiveNormBackwardArgs& args) {
  const int64_t d = ExpectColumns("adaptive_norm x", args.x), t = args.x.shape.rows();
  const DType dtype = args.x.dtype, accumulate = AccumulateOfDType(dtype);
  ExpectFloat("adaptive_norm x", args.x);
  ExpectMatrix("adaptive_norm dy", args.dy, dtype, t, d);
  ExpectSamples("adaptive_norm scale", args.x, args.scale, args.rows);
  const int64_t samples = args.scale.shape.rows();
  ExpectElements("adaptive_norm mean", args.mean, accumulate, t);
  ExpectElements("adaptive_norm rstd", args.rstd, accumulate, t);
  ExpectMatrix("adaptive_norm dx", args.dx, dtype, t, d);
  ExpectMatrix("adaptive_norm dshift", args.dshift, dtype, samples, d);
  ExpectMatrix("adaptive_norm dscale", args.dscale, dtype, samples, d);
}

}  // namespace trainyard
