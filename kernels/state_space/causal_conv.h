// A causal convolution along the sequence, of each channel by itself, and SiLU. Sequences are
// divided into parts, and a part may continue another one:
//
//   s[t,c]  = bias[c] + sum_k weight[c,k] x[t - K + 1 + k, c]
//   y[t,c]  = s sigmoid(s)
//
// Rows before a part are the rows of its tail, or zeros. Rows before a token's document are zeros
// for it (document_borders.h). Backward computes s again:
//
//   ds[t,c]      = dy[t,c] (sigmoid(s) (1 + s (1 - sigmoid(s))))
//   dx[t,c]      = sum_k weight[c,k] ds[t + K - 1 - k, c], also for the rows of the tail
//   dweight[c,k] = sum_t ds[t,c] x[t - K + 1 + k, c],   dbias[c] = sum_t ds[t,c]
//
// Source: Gu & Dao 2023, arXiv:2312.00752, section 3.4. Letters: T tokens in M parts of L, C
// channels, K taps. Sums are taken in f32 (f64 when x is f64). Bitwise deterministic, on the CPU
// for any thread count.

#pragma once

#include "kernels/state_space/document_borders.h"

namespace trainyard {

inline constexpr int64_t kMaxConvTaps = 8;

struct CausalConvForwardArgs {
  ConstTensor x;       // [T, C]        f64 | f32 | bf16
  ConstTensor weight;  // [C, K]        dtype of x; 2 <= K <= kMaxConvTaps; may be [C, 1, K]
  ConstTensor bias;    // [C]           dtype of x
  ConstTensor tail =
      {};            // [M (K-1), C]  dtype of x: the rows before each part; without data: zeros
  int64_t sequence;  // L
  Tensor y;          // [T, C]        out, dtype of x; not x
  ConstTensor document_positions = {};  // [T]  i32; without data: documents begin before parts
};

struct CausalConvBackwardArgs {
  ConstTensor dy;  // [T, C]  dtype of x
  ConstTensor x;
  ConstTensor weight;
  ConstTensor bias;
  ConstTensor tail = {};
  int64_t sequence;
  Tensor dx;          // [T, C]        out, dtype of x; neither dy nor x
  Tensor dweight;     // [C, K]        in/out, f32 (f64 when x is f64)
  Tensor dbias;       // [C]           in/out, the same
  Tensor dtail = {};  // [M (K-1), C]  out, dtype of x; given if and only if the tail is
  Write write_dweight;
  Write write_dbias;
  ConstTensor document_positions = {};
};

template <typename Args>
void CheckConvOperands(const Args& args) {
  ExpectFloat("causal_conv x", args.x);
  const int64_t c = ExpectColumns("causal_conv x", args.x), t = args.x.shape.rows();
  const int64_t k = ExpectColumns("causal_conv weight", args.weight);
  CHECK(k >= 2 && k <= kMaxConvTaps)
      << "causal_conv weight: wanted 2 to " << kMaxConvTaps << " taps, got " << args.weight.shape;
  CHECK(args.sequence >= 1 && t % args.sequence == 0)
      << "causal_conv sequence: " << args.sequence << " of " << t << " tokens";
  ExpectElements("causal_conv weight", args.weight, args.x.dtype, c * k);
  ExpectElements("causal_conv bias", args.bias, args.x.dtype, c);
  ExpectDocumentPositions("causal_conv document_positions", args.document_positions, t);
  if (args.tail.data == nullptr) return;
  ExpectMatrix("causal_conv tail", args.tail, args.x.dtype, t / args.sequence * (k - 1), c);
}

inline void Check(const CausalConvForwardArgs& args) {
  CheckConvOperands(args);
  ExpectMatrix("causal_conv y", args.y, args.x.dtype, args.x.shape.rows(), args.x.shape.back());
  CHECK(args.y.data != args.x.data) << "causal_conv y: in the memory of x";
}

inline void Check(const CausalConvBackwardArgs& args) {
  CheckConvOperands(args);
  const int64_t c = args.x.shape.back(), t = args.x.shape.rows(), k = args.weight.shape.back();
  const DType dtype = args.x.dtype, sums = AccumulateOfDType(dtype);
  ExpectMatrix("causal_conv dy", args.dy, dtype, t, c);
  ExpectMatrix("causal_conv dx", args.dx, dtype, t, c);
  ExpectElements("causal_conv dweight", args.dweight, sums, c * k);
  ExpectElements("causal_conv dbias", args.dbias, sums, c);
  CHECK(args.dx.data != args.x.data && args.dx.data != args.dy.data)
      << "causal_conv dx: in the memory of x or dy";
  CHECK((args.tail.data == nullptr) == (args.dtail.data == nullptr))
      << "causal_conv dtail: wanted if and only if there is a tail";
  if (args.tail.data == nullptr) return;
  ExpectMatrix("causal_conv dtail", args.dtail, dtype, t / args.sequence * (k - 1), c);
}

}  // namespace trainyard
