// Rounds a matrix to an 8-bit floating-point format, with scales for blocks of its numbers:
//
//   amax[i,j]   = max |x[r,c]| over the numbers of block (i, j)
//   factor      = largest number of the format / amax[i,j];  1 if amax[i,j] is 0
//   y[r,c]      = round(x[r,c] * factor)      (narrow.h)
//   scale[i,j]  = 1 / factor
//
// The rounded matrix is written by rows, by columns, or both, because the tensor cores want the
// numbers that a product sums to be neighbours in memory (scaled_matmul.h).
//
// The two kernels are apart, because ranks that divide a block need the greatest amax of all of
// them, and because a scale may come from earlier steps (amax_history.h). If a matrix has one
// scale, `amax` may have any number of elements, of which the greatest counts. An amax that is not
// a number is passed over; the numbers themselves stay NaN. With an infinite amax all of y times
// its scale is NaN.
//
// Letters: R rows, C columns. Leading dims of x count as rows. Deterministic. Source: Micikevicius
// et al. 2022, arXiv:2209.05433; DeepSeek-V3, arXiv:2412.19437, section 3.3.

#pragma once

#include "kernels/device/expect.h"
#include "kernels/device/narrow.h"

namespace trainyard {

struct AmaxArgs {
  ConstTensor x;     // [R, C]  f64 | f32 | bf16
  ScaleBlock block;  // Numbers that share a scale.
  Tensor amax;       // [block.ScalesOf(x)]  f32 (f64 when x is f64), out
};

struct QuantizeArgs {
  ConstTensor x;           // [R, C]  f64 | f32 | bf16
  ScaleBlock block;        // Numbers that share a scale.
  ConstTensor amax;        // [block.ScalesOf(x)], or [n] for one scale;  f32 (f64 when x is f64)
  Tensor y = {};           // [R, C]  e4m3 | e5m2, out; none if its data is null
  Tensor by_columns = {};  // [C, R]  the transpose of y, out; none if its data is null
  Tensor scales;           // [block.ScalesOf(x)]  dtype of amax, out
};

inline void Check(const AmaxArgs& args) {
  ExpectFloat("amax x", args.x);
  ExpectColumns("amax x", args.x);
  const Shape scales = args.block.ScalesOf(args.x.shape);
  ExpectMatrix("amax amax", args.amax, AccumulateOfDType(args.x.dtype), scales[0], scales[1]);
}

inline void Check(const QuantizeArgs& args) {
  ExpectFloat("quantize x", args.x);
  ExpectColumns("quantize x", args.x);
  const DType dtype = AccumulateOfDType(args.x.dtype);
  const Shape scales = args.block.ScalesOf(args.x.shape);
  const bool rows = args.y.data != nullptr, columns = args.by_columns.data != nullptr;
  CHECK(rows || columns) << "quantize: no output";
  if (rows) {
    ExpectDType("quantize y", args.y, {DType::kE4M3, DType::kE5M2});
    ExpectElements("quantize y", args.y, args.y.dtype, args.x.elements());
  }
  if (columns) {
    const DType narrow = rows ? args.y.dtype : args.by_columns.dtype;
    ExpectDType("quantize by_columns", args.by_columns, {DType::kE4M3, DType::kE5M2});
    ExpectMatrix("quantize by_columns", args.by_columns, narrow, args.x.shape.back(),
                 args.x.shape.rows());
  }
  ExpectMatrix("quantize scales", args.scales, dtype, scales[0], scales[1]);
  const bool one = scales.elements() == 1 && args.amax.elements() >= 1;
  ExpectElements("quantize amax", args.amax, dtype, one ? args.amax.elements() : scales.elements());
}

}  // namespace trainyard
