// Dropout of a layer's output.
//
//   y[t,d] = x[t,d] / (1 - p) with probability 1 - p, and 0 otherwise
//
// The gradient of x is the same function of the gradient of y. dropout_key.h says which elements
// are kept. The number of an element is (sample * S + position) * W + first_column + d, where
// `sample` counts the samples of the global batch. In validation y is x.
//
// Letters: T rows, D columns of x, W columns of all ranks' x together, n ranks that divide the
// rows, S tokens of a sample. Computed in f32 (f64 for f64), rounded once. Bitwise deterministic
// for any thread count, and equal on all devices.
//
// Source: Srivastava et al. 2014, Journal of Machine Learning Research 15.

#pragma once

#include "kernels/device/expect.h"
#include "kernels/device/sequence_part.h"
#include "kernels/elementwise/dropout_key.h"

namespace trainyard {

struct DropoutArgs {
  ConstTensor x;        // [T, D]  f64 | f32 | bf16
  ConstTensor samples;  // [n T]   i32: the sample of each row of all n ranks
  SequencePart part;
  int64_t first_row = 0;     // Number of x's first row among the rows of all n ranks.
  int64_t first_column = 0;  // Number of x's first column among those of all ranks.
  int64_t columns = 0;       // W. 0: D.
  DropoutPlace place;
  const StepState* state;  // device memory
  Tensor y;                // [T, D]  out, dtype of x; may be x
};

inline void Check(const DropoutArgs& args) {
  const int64_t d = ExpectColumns("dropout x", args.x), t = args.x.shape.rows();
  ExpectFloat("dropout x", args.x);
  ExpectElements("dropout samples", args.samples, DType::kI32, args.samples.elements());
  ExpectMatrix("dropout y", args.y, args.x.dtype, t, d);
  CHECK(args.part.valid()) << "dropout: rows " << args.part.rows << ", rank " << args.part.rank
                           << " of " << args.part.ranks;
  CHECK(args.first_row >= 0 && args.first_row + t <= args.samples.elements())
      << "dropout first_row: " << t << " rows from " << args.first_row << " of "
      << args.samples.elements();
  const int64_t columns = args.columns > 0 ? args.columns : d;
  CHECK(args.first_column >= 0 && args.first_column + d <= columns)
      << "dropout first_column: " << d << " columns from " << args.first_column << " of "
      << columns;
  Check("dropout", args.place);
  CHECK(args.state != nullptr) << "dropout state: none";
}

}  // namespace trainyard
