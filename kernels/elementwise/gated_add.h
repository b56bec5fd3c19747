// Multiplies a branch by a gate and adds the product to the residual stream. The gates are rows
// that are computed from a condition of each sample (adaLN-Zero of diffusion transformers).
//
//   s           = rows.sample_of(t)
//   y[t,d]      = x[t,d] + gate[s,d] h[t,d]          dx = dy
//   dh[t,d]     = gate[s,d] dy[t,d]
//   dgate[s,d]  = sum over the sample's rows t of dy[t,d] h[t,d]
//
// Source: Peebles & Xie 2022, arXiv:2212.09748, section 3.2.
// Letters: T rows, B samples, D width. Sums are taken in f32 (f64 when x is f64). The gradient of a
// sample without rows in x is zero. The results are bitwise deterministic; on the CPU they do not
// depend on the number of threads.

#pragma once

#include "kernels/device/sample_rows.h"

namespace trainyard {

struct GatedAddForwardArgs {
  ConstTensor x;     // [T, D]  f64 | f32 | bf16
  ConstTensor gate;  // [B, D]  dtype of x
  ConstTensor h;     // [T, D]  dtype of x
  SampleRows rows;
  Tensor y;  // [T, D]  out, dtype of x; may be x or h
};

struct GatedAddBackwardArgs {
  ConstTensor dy;    // [T, D]  f64 | f32 | bf16
  ConstTensor gate;  // [B, D]  the forward input
  ConstTensor h;     // [T, D]  the forward input
  SampleRows rows;
  Tensor dh;     // [T, D]  out, dtype of dy, overwritten; may be h
  Tensor dgate;  // [B, D]  out, dtype of dy, overwritten
};

inline void Check(const GatedAddForwardArgs& args) {
  const int64_t d = ExpectColumns("gated_add x", args.x), t = args.x.shape.rows();
  ExpectFloat("gated_add x", args.x);
  ExpectSamples("gated_add gate", args.x, args.gate, args.rows);
  ExpectMatrix("gated_add h", args.h, args.x.dtype, t, d);
  ExpectMatrix("gated_add y", args.y, args.x.dtype, t, d);
}

inline void Check(const GatedAddBackwardArgs& args) {
  const int64_t d = ExpectColumns("gated_add dy", args.dy), t = args.dy.shape.rows();
  ExpectFloat("gated_add dy", args.dy);
  ExpectSamples("gated_add gate", args.dy, args.gate, args.rows);
  ExpectMatrix("gated_add h", args.h, args.dy.dtype, t, d);
  ExpectMatrix("gated_add dh", args.dh, args.dy.dtype, t, d);
  ExpectMatrix("gated_add dgate", args.dgate, args.dy.dtype, args.gate.shape.rows(), d);
}

}  // namespace trainyard
