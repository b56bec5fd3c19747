// RMSNorm of a gated value, by groups of columns, with a learned gain.
//
//   h[t,d]    = x[t,d] z[t,d] sigmoid(z[t,d])
//   rstd[t,g] = 1 / sqrt(mean of h[t,d]^2 over the columns d of group g, + eps)
//   y[t,d]    = h[t,d] rstd[t,g] gain[d]
//
//   dh[t,d]   = rstd[t,g] (gain[d] dy[t,d] - h[t,d] rstd[t,g]^2 mean_e(dy[t,e] gain[e] h[t,e]))
//   dx        = dh z sigmoid(z),   dz = dh x sigmoid(z) (1 + z (1 - sigmoid(z)))
//   dgain[d]  = sum_t dy[t,d] h[t,d] rstd[t,g]
//
// Source: Dao & Gu 2024, arXiv:2405.21060, section 7.2. Letters: T tokens, D width, G groups of D/G
// neighbouring columns. Sums are taken in f32 (f64 when x is f64). Bitwise deterministic, on the
// CPU for any thread count.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct GatedNormForwardArgs {
  ConstTensor x;     // [T, D]  f64 | f32 | bf16
  ConstTensor z;     // [T, D]  dtype of x
  ConstTensor gain;  // [D]     dtype of x
  int64_t groups;    // G, divides D
  double eps;        // > 0
  Tensor y;          // [T, D]  out, dtype of x; may be x or z
  Tensor rstd;       // [T, G]  out, f32 (f64 when x is f64); kept for backward
};

struct GatedNormBackwardArgs {
  ConstTensor dy;  // [T, D]  dtype of x
  ConstTensor x;
  ConstTensor z;
  ConstTensor gain;
  ConstTensor rstd;
  int64_t groups;
  Tensor dx;     // [T, D]  out, dtype of x; may be x
  Tensor dz;     // [T, D]  out, dtype of x; may be z
  Tensor dgain;  // [D]     in/out, f32 (f64 when x is f64)
  Write write;   // of dgain
};

template <typename Args>
void CheckGatedNormOperands(const Args& args) {
  ExpectFloat("gated_norm x", args.x);
  const int64_t d = ExpectColumns("gated_norm x", args.x), t = args.x.shape.rows();
  ExpectMatrix("gated_norm z", args.z, args.x.dtype, t, d);
  ExpectElements("gated_norm gain", args.gain, args.x.dtype, d);
  CHECK(args.groups >= 1 && d % args.groups == 0)
      << "gated_norm groups: " << args.groups << " of " << d << " columns";
  ExpectMatrix("gated_norm rstd", args.rstd, AccumulateOfDType(args.x.dtype), t, args.groups);
}

inline void Check(const GatedNormForwardArgs& args) {
  CheckGatedNormOperands(args);
  CHECK(args.eps > 0) << "gated_norm eps: " << args.eps;
  ExpectMatrix("gated_norm y", args.y, args.x.dtype, args.x.shape.rows(), args.x.shape.back());
}

inline void Check(const GatedNormBackwardArgs& args) {
  CheckGatedNormOperands(args);
  const int64_t d = args.x.shape.back(), t = args.x.shape.rows();
  ExpectMatrix("gated_norm dy", args.dy, args.x.dtype, t, d);
  ExpectMatrix("gated_norm dx", args.dx, args.x.dtype, t, d);
  ExpectMatrix("gated_norm dz", args.dz, args.x.dtype, t, d);
  ExpectElements("gated_norm dgain", args.dgain, AccumulateOfDType(args.x.dtype), d);
}

}  // namespace trainyard
