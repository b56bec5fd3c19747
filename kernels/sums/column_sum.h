// The sum over rows, which is the gradient of a bias:
//
//   y[n] = (write == kAdd ? y[n] : 0) + sum_t x[t,n]
//
// Letters: T rows, N columns. Summed in f32 (f64 when x is f64). Bitwise deterministic, on the CPU
// for any thread count.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct ColumnSumArgs {
  ConstTensor x;  // [T, N]  f64 | f32 | bf16
  Tensor y;       // [N]     in/out, f32 (f64 when x is f64)
  Write write;
};

inline void Check(const ColumnSumArgs& args) {
  const int64_t columns = ExpectColumns("column_sum x", args.x);
  ExpectFloat("column_sum x", args.x);
  ExpectElements("column_sum y", args.y, AccumulateOfDType(args.x.dtype), columns);
}

}  // namespace trainyard
