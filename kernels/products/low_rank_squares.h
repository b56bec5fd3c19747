// The squared norms of the rows of a weight, alone and with what a low-rank adapter adds to it:
//
//   squares[n,0] = sum_k w[n,k]^2
//   squares[n,1] = sum_k (w[n,k] + scale sum_r b[n,r] a[r,k])^2
//
// The adapted weight is never in memory. Letters: N outputs, K inputs, R rank. Computed in f32 (f64
// for f64). Bitwise deterministic, on the CPU for any thread count.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct LowRankSquaresArgs {
  ConstTensor w;  // [N, K]  f64 | f32 | bf16
  ConstTensor a;  // [R, K]  dtype of w
  ConstTensor b;  // [N, R]  dtype of w
  double scale;
  Tensor squares;  // [N, 2]  out, f32 (f64 when w is f64)
};

inline void Check(const LowRankSquaresArgs& args) {
  ExpectFloat("low_rank_squares w", args.w);
  const int64_t k = ExpectColumns("low_rank_squares w", args.w), n = args.w.shape.rows();
  const int64_t r = ExpectColumns("low_rank_squares b", args.b);
  ExpectMatrix("low_rank_squares a", args.a, args.w.dtype, r, k);
  ExpectMatrix("low_rank_squares b", args.b, args.w.dtype, n, r);
  ExpectMatrix("low_rank_squares squares", args.squares, AccumulateOfDType(args.w.dtype), n, 2);
}

}  // namespace trainyard
