// RMSNorm of each query and key head of a packed projection ("QK norm"), with one gain for all
// query heads and one for all key heads. Value heads are copied.
//
//   rstd[t,h] = 1 / sqrt(mean_i x[t,h,i]^2 + eps)           h < a+g
//   y[t,h,i]  = x[t,h,i] rstd[t,h] (gain[i] + gain_offset)  gain: q_gain for h < a, else k_gain
//
// If a rotation is given, query and key heads are then rotated as by rope.h, all d dims of them.
// The numbers between are rounded to the dtype of x, so that the bits are those of the two ops one
// after the other.
//
// The backward formulas for each head are those of rms_norm.h. The gradient of a gain is the sum
// over tokens and over the heads that use the gain.
//
// Source: Henry et al. 2020, arXiv:2010.04245 (the idea); Qwen3, arXiv:2505.09388 (this form).
// Letters: T tokens, a query heads, g key/value heads, d head dim. Sums are taken in f32 (f64 when
// x is f64). Bitwise deterministic, on the CPU for any thread count.

#pragma once

#include <tuple>

#include "kernels/attention/rope.h"
#include "kernels/device/expect.h"

namespace trainyard {

struct HeadNormForwardArgs {
  ConstTensor x;           // [T, (a+2g)d]  f64 | f32 | bf16; heads in the order query, key, value
  ConstTensor q_gain;      // [d]           dtype of x
  ConstTensor k_gain;      // [d]           dtype of x
  int64_t heads;           // a
  int64_t kv_heads;        // g
  double eps;              // > 0
  Tensor y;                // [T, (a+2g)d]  out, dtype of x; may be x
  Tensor rstd;             // [T, a+g]      out, f32 (f64 when x is f64); kept for backward
  double gain_offset = 0;  // As in rms_norm.h, for both gains.
  ConstTensor cos = {};    // [S, d/2]      dtype of rstd, as in rope.h; if given, y is rotated
  ConstTensor sin = {};    // [S, d/2]
  int64_t sequence = 0;    // of the rotation, as in rope.h
};

struct HeadNormBackwardArgs {
  ConstTensor dy;      // [T, (a+2g)d]  dtype of x
  ConstTensor x;       // [T, (a+2g)d]  the forward input
  ConstTensor q_gain;  // [d]
  ConstTensor k_gain;  // [d]
  ConstTensor rstd;    // [T, a+g]      the forward output
  int64_t heads;
  int64_t kv_heads;
  Tensor dx;               // [T, (a+2g)d]  out, dtype of x, overwritten; may be dy, but not x
  Tensor dq_gain;          // [d]           in/out, f32 (f64 when x is f64)
  Tensor dk_gain;          // [d]           in/out, the same
  Write write;             // of both gains
  double gain_offset = 0;  // the forward argument, as the next three
  ConstTensor cos = {};
  ConstTensor sin = {};
  int64_t sequence = 0;
};

// Checks the arguments that both directions share, and returns the dtype of sums.
template <typename Args>
DType ExpectHeadNorm(const Args& args) {
  const auto& [x, q_gain, k_gain] = std::tie(args.x, args.q_gain, args.k_gain);
  const int64_t heads = args.heads, kv_heads = args.kv_heads;
  const int64_t columns = ExpectColumns("head_norm x", x);
  ExpectFloat("head_norm x", x);
  CHECK(heads >= 1 && kv_heads >= 1 && columns % (heads + 2 * kv_heads) == 0)
      << "head_norm x: " << x.shape << " for " << heads << " query and " << kv_heads
      << " key/value heads";
  const int64_t d = columns / (heads + 2 * kv_heads);
  ExpectElements("head_norm q_gain", q_gain, x.dtype, d);
  ExpectElements("head_norm k_gain", k_gain, x.dtype, d);
  const DType accumulate = AccumulateOfDType(x.dtype);
  if (args.cos.data == nullptr) return accumulate;
  const int64_t rows = args.cos.shape.rows();
  CHECK(d % 2 == 0) << "head_norm cos: a rotation of heads of " << d << " dims, legal is "
                    << "an even number";
  ExpectMatrix("head_norm cos", args.cos, accumulate, rows, d / 2);
  ExpectMatrix("head_norm sin", args.sin, accumulate, rows, d / 2);
  CHECK(args.sequence > 0 && args.sequence <= rows)
      << "head_norm sequence: " << args.sequence << " with a table of " << rows << " positions";
  return accumulate;
}

// The rotation of heads that are normalised, or of the gradient of such heads, apart.
template <typename Args>
RopeArgs RotationOf(const Args& args, const ConstTensor& x, const Tensor& y, bool inverse) {
  return {.x = x,
          .cos = args.cos,
          .sin = args.sin,
          .heads = args.heads,
          .kv_heads = args.kv_heads,
          .head_dim = args.q_gain.elements(),
          .sequence = args.sequence,
          .y = y,
          .inverse = inverse};
}

inline void Check(const HeadNormForwardArgs& args) {
  const DType accumulate = ExpectHeadNorm(args);
  const int64_t t = args.x.shape.rows();
  CHECK(args.eps > 0) << "head_norm eps: " << args.eps;
  ExpectMatrix("head_norm y", args.y, args.x.dtype, t, args.x.shape.back());
  ExpectMatrix("head_norm rstd", args.rstd, accumulate, t, args.heads + args.kv_heads);
}

inline void Check(const HeadNormBackwardArgs& args) {
  const DType accumulate = ExpectHeadNorm(args);
  const int64_t t = args.x.shape.rows(), columns = args.x.shape.back();
  ExpectMatrix("head_norm dy", args.dy, args.x.dtype, t, columns);
  ExpectMatrix("head_norm rstd", args.rstd, accumulate, t, args.heads + args.kv_heads);
  ExpectMatrix("head_norm dx", args.dx, args.x.dtype, t, columns);
  ExpectElements("head_norm dq_gain", args.dq_gain, accumulate, args.q_gain.elements());
  ExpectElements("head_norm dk_gain", args.dk_gain, accumulate, args.k_gain.elements());
}

}  // namespace trainyard
