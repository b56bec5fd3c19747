// Gated linear unit over a packed projection: gate first, then up.
//
//   y = act(g) u       g = x[t, :F], u = x[t, F:]
//   dg = dy u act'(g)       du = dy act(g)
//
// act is SiLU (SwiGLU), g sigmoid(g), or GELU in its tanh form (GeGLU), as in gelu.h.
//
// Source: Shazeer 2020, arXiv:2002.05202, eq. 5 and 6. Letters: T tokens, F width.
// Computed in f32 (f64 when x is f64). Bitwise deterministic for any thread count.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

enum class GateActivation : uint8_t { kSilu, kGelu };

struct SwiGluForwardArgs {
  ConstTensor x;  // [T, 2F]  f64 | f32 | bf16
  Tensor y;       // [T, F]   out, dtype of x
  GateActivation gate = GateActivation::kSilu;
};

struct SwiGluBackwardArgs {
  ConstTensor dy;  // [T, F]   dtype of x
  ConstTensor x;   // [T, 2F]  the forward input
  Tensor dx;       // [T, 2F]  out, dtype of x, overwritten; may be x
  GateActivation gate = GateActivation::kSilu;
};

inline void Check(const SwiGluForwardArgs& args) {
  const int64_t columns = ExpectColumns("swiglu x", args.x);
  ExpectFloat("swiglu x", args.x);
  CHECK(columns % 2 == 0) << "swiglu x: odd width " << args.x.shape;
  ExpectMatrix("swiglu y", args.y, args.x.dtype, args.x.shape.rows(), columns / 2);
}

inline void Check(const SwiGluBackwardArgs& args) {
  const int64_t columns = ExpectColumns("swiglu x", args.x), rows = args.x.shape.rows();
  ExpectFloat("swiglu x", args.x);
  CHECK(columns % 2 == 0) << "swiglu x: odd width " << args.x.shape;
  ExpectMatrix("swiglu dy", args.dy, args.x.dtype, rows, columns / 2);
  ExpectMatrix("swiglu dx", args.dx, args.x.dtype, rows, columns);
}

}  // namespace trainyard
