// Copies columns from one matrix to another, with a change of dtype as in cast.h:
//
//   y[t, y_begin + c] = x[t, x_begin + c]   for 0 <= c < columns
//
// The other columns of y keep their values. Used to take the keys and values out of a packed
// projection, and to pack gradients. Letters: T rows, M columns of x, N columns of y.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct CopyColumnsArgs {
  ConstTensor x;  // [T, M]  f64 | f32 | bf16
  int64_t x_begin;
  Tensor y;  // [T, N]  f64 | f32 | bf16, in/out; does not overlap x
  int64_t y_begin;
  int64_t columns;
};

inline void Check(const CopyColumnsArgs& args) {
  const int64_t x_columns = ExpectColumns("copy_columns x", args.x);
  const int64_t y_columns = ExpectColumns("copy_columns y", args.y);
  ExpectFloat("copy_columns x", args.x);
  ExpectFloat("copy_columns y", args.y);
  ExpectMatrix("copy_columns y", args.y, args.y.dtype, args.x.shape.rows(), y_columns);
  CHECK(args.columns > 0 && args.x_begin >= 0 && args.x_begin + args.columns <= x_columns)
      << "copy_columns x_begin: " << args.columns << " columns from " << args.x_begin << " of "
      << args.x.shape;
  CHECK(args.y_begin >= 0 && args.y_begin + args.columns <= y_columns)
      << "copy_columns y_begin: " << args.columns << " columns from " << args.y_begin << " of "
      << args.y.shape;
}

}  // namespace trainyard
