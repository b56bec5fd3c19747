// Copies the rows that `rows` names; the adjoint, which adds rows; and the other direction, which
// copies rows to where `rows` says.
//
//   GatherRows:  y[i,:] = x[rows[i] / divisor,:]                     for i < count
//   GatherSum:   y[t,:] = (write == kAdd ? y[t,:] : 0) + sum_j z[place[t,j],:], in order of j;
//                a place of -1 adds nothing
//   ScatterRows: y[rows[i],:] = x[i,:]; a row of -1 goes nowhere
//
// With slots t K + j sorted by expert (expert_order.h), GatherRows copies the tokens in this order
// if rows = order and divisor = K. GatherSum with the inverse order is its gradient, and the other
// way round.
//
// Letters: S rows of x, R bound on the gathered rows, T tokens, K rows added for each, D width.
// `count` is read when the kernel runs; further rows of y do not change. A row that does not exist
// is a programmer error that names it. Sums are taken in f32 (f64 for f64). Bitwise deterministic
// for any thread count.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct GatherRowsArgs {
  ConstTensor x;           // [S, D]  f64 | f32 | bf16
  ConstTensor rows;        // [R]     i32
  ConstTensor count = {};  // [1]     i32, at most R; if its data is null, all R rows
  int64_t divisor = 1;     // >= 1
  Tensor y;                // [R, D]  out, dtype of x; not x
};

struct GatherSumArgs {
  ConstTensor z;      // [R, D]  f64 | f32 | bf16
  ConstTensor place;  // [T, K]  i32, in [-1, R)
  Tensor y;           // [T, D]  in/out, dtype of z; not z
  Write write = Write::kOverwrite;
};

struct ScatterRowsArgs {
  ConstTensor x;     // [R, D]  f64 | f32 | bf16
  ConstTensor rows;  // [R]     i32, in [-1, S); no row but -1 comes twice
  Tensor y;          // [S, D]  in/out, dtype of x; not x; other rows do not change
};

inline void Check(const GatherRowsArgs& args) {
  const int64_t d = ExpectColumns("gather_rows x", args.x), r = args.rows.elements();
  ExpectFloat("gather_rows x", args.x);
  ExpectElements("gather_rows rows", args.rows, DType::kI32, r);
  if (args.count.data != nullptr) {
    ExpectElements("gather_rows count", args.count, DType::kI32, 1);
  }
  CHECK(args.divisor >= 1) << "gather_rows divisor: " << args.divisor;
  ExpectMatrix("gather_rows y", args.y, args.x.dtype, r, d);
}

inline void Check(const GatherSumArgs& args) {
  const int64_t d = ExpectColumns("gather_sum z", args.z);
  ExpectFloat("gather_sum z", args.z);
  ExpectColumns("gather_sum place", args.place);
  ExpectElements("gather_sum place", args.place, DType::kI32, args.place.elements());
  ExpectMatrix("gather_sum y", args.y, args.z.dtype, args.place.shape.rows(), d);
}

inline void Check(const ScatterRowsArgs& args) {
  const int64_t d = ExpectColumns("scatter_rows x", args.x);
  ExpectFloat("scatter_rows x", args.x);
  ExpectElements("scatter_rows rows", args.rows, DType::kI32, args.x.shape.rows());
  ExpectMatrix("scatter_rows y", args.y, args.x.dtype, args.y.shape.rows(), d);
}

}  // namespace trainyard
