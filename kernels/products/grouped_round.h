// Rounds the rows of each group to an 8-bit floating-point format, with one scale for a group:
//
//   amax[g]    = max |x[r,c]| over the rows r of group g;  0 if it has none
//   factor[g]  = largest number of the format / amax[g];  1 if amax[g] is 0
//   y[r,c]     = the number of the format that is nearest to x[r,c] factor[g]      (narrow.h)
//   scales[g]  = 1 / factor[g]
//
// Instead of all numbers of a group, those of one of its rows, or of one of its columns, may share
// a scale: then there is an amax and a scale for each row, or for each column of each group.
//
// This is quantize.h for the groups of grouped_matmul.h, with two differences. The numbers of the
// 8-bit format are written in the dtype of x, which has all of them: so the grouped product of that
// dtype multiplies them, with the scales as its factors. And a group's scale may follow from
// several greatest values, as those of a history (amax_history.h), of which the greatest counts.
//
// An amax that is not a number is passed over; the numbers themselves stay NaN. With an infinite
// amax all of y times its scale is NaN. Infinity becomes NaN in e4m3.
//
// Letters: R bound on the rows, C columns, G groups, n greatest values. Group g has the rows
// [offsets[g], offsets[g+1]) and may be empty. Without offsets, each group has R / G rows. The
// offsets are read when the kernel runs. Rows outside the groups are neither read nor written, and
// an amax or a scale of such a row has no meaning. Offsets that fall or leave [0, R] are a
// programmer error that names them. Leading dims of x count as rows. Deterministic. Source:
// Micikevicius et al. 2022, arXiv:2209.05433. Transformer Engine's GroupedLinear has a scale for
// each expert's rows and weight, too.

#pragma once

#include "kernels/device/expect.h"
#include "kernels/device/narrow.h"

namespace trainyard {

// The numbers of a group that share a scale, and how many scales there are: G, R or G C.
enum class ScaleOf : uint8_t { kGroup, kRow, kColumn };

struct GroupedAmaxArgs {
  ConstTensor x;             // [R, C]  f64 | f32 | bf16
  ConstTensor offsets = {};  // [G+1]   i32; absent when its data is null
  Tensor amax;               // [G] | [R] | [G,C]  in/out, f32 (f64 when x is f64)
  Write write;               // kAdd: the greater of what amax holds and what is found
  ScaleOf scale_of = ScaleOf::kGroup;
};

struct GroupedRoundArgs {
  ConstTensor x;             // [R, C]       f64 | f32 | bf16
  ConstTensor offsets = {};  // [G+1]        i32; absent when its data is null
  ConstTensor amax;          // [G] | [G,n], or as `scales`;  f32 (f64 when x is f64)
  DType format;              //              e4m3 | e5m2
  Tensor y;                  // [R, C]       out, dtype of x; may be x
  Tensor scales;             // [G] | [R] | [G,C]  out, dtype of amax
  ScaleOf scale_of = ScaleOf::kGroup;
};

// The number of groups of x that have so many scales. Rows need no groups of equal length.
inline int64_t GroupsOfScales(const ConstTensor& x, const ConstTensor& offsets, ScaleOf scale_of,
                              int64_t scales) {
  if (scale_of == ScaleOf::kGroup) return scales;
  if (scale_of == ScaleOf::kColumn) return scales / x.shape.back();
  return offsets.data == nullptr ? 1 : offsets.elements() - 1;
}

inline void ExpectGroupsOfRows(const ConstTensor& x, const ConstTensor& offsets, ScaleOf scale_of,
                               int64_t scales) {
  ExpectFloat("grouped_round x", x);
  ExpectColumns("grouped_round x", x);
  const int64_t groups = GroupsOfScales(x, offsets, scale_of, scales);
  CHECK(groups > 0) << "grouped_round: no groups";
  const int64_t wanted = scale_of == ScaleOf::kGroup ? groups
                         : scale_of == ScaleOf::kRow ? x.shape.rows()
                                                     : groups * x.shape.back();
  CHECK(scales == wanted) << "grouped_round scales: wanted " << wanted << ", got " << scales;
  if (offsets.data != nullptr) {
    return ExpectElements("grouped_round offsets", offsets, DType::kI32, groups + 1);
  }
  CHECK(x.shape.rows() % groups == 0)
      << "grouped_round x: wanted a multiple of " << groups << " rows, got " << x.shape;
}

inline void Check(const GroupedAmaxArgs& args) {
  ExpectGroupsOfRows(args.x, args.offsets, args.scale_of, args.amax.elements());
  ExpectElements("grouped_round amax", args.amax, AccumulateOfDType(args.x.dtype),
                 args.amax.elements());
}

inline void Check(const GroupedRoundArgs& args) {
  const int64_t scales = args.scales.elements();
  const DType dtype = AccumulateOfDType(args.x.dtype);
  ExpectGroupsOfRows(args.x, args.offsets, args.scale_of, scales);
  CHECK(IsNarrow(args.format)) << "grouped_round: wanted e4m3 or e5m2, got " << args.format;
  ExpectElements("grouped_round y", args.y, args.x.dtype, args.x.elements());
  ExpectElements("grouped_round scales", args.scales, dtype, scales);
  ExpectData("grouped_round amax", args.amax);
  ExpectDType("grouped_round amax", args.amax, {dtype});
  const bool each = args.amax.elements() == scales;
  CHECK(each || (args.scale_of == ScaleOf::kGroup && args.amax.shape[0] == scales))
      << "grouped_round amax: wanted " << scales << " scales, got " << args.amax.shape;
}

}  // namespace trainyard
