// The magnitudes of a weight's rows, which are learned apart from the rows' directions (DoRA; Liu
// et al. 2024, arXiv:2402.09353, equation 5). Of the squared norms of the rows, without and with
// what an adapter adds (kernels/products/low_rank_squares.h):
//
//   inverse[n] = 1 / sqrt(squares[n,1])
//   gain[n]    = (sqrt(squares[n,0]) + offset[n]) / sqrt(squares[n,1])
//   y[t,n]     = gain[n] z[t,n]
//
//   dz[t,n]    = gain[n] dy[t,n]
//   doffset[n] = (write == kAdd ? doffset[n] : 0) + inverse[n] sum_t dy[t,n] z[t,n]
//
// A magnitude is the norm of its row of the weight plus a trained offset. The norms have no
// gradient (section 4.3 of the paper). A row of norm 0 has no direction: its inverse and gain are
// 0. Letters: T rows, N columns. Computed in f32 (f64 for f64), rounded once. Bitwise
// deterministic, on the CPU for any thread count.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct MagnitudeGainArgs {
  ConstTensor squares;  // [N, 2]  f64 | f32
  ConstTensor offset;   // [N]     f64 if squares are; else f32 | bf16
  Tensor gain;          // [N]     out, dtype of squares
  Tensor inverse;       // [N]     out, dtype of squares
};

struct MagnitudeForwardArgs {
  ConstTensor z;     // [T, N]  f64 | f32 | bf16
  ConstTensor gain;  // [N]     f32 (f64 when z is f64)
  Tensor y;          // [T, N]  out, dtype of z; may be z
};

struct MagnitudeBackwardArgs {
  ConstTensor dy;       // [T, N]  f64 | f32 | bf16
  ConstTensor z;        // [T, N]  dtype of dy
  ConstTensor gain;     // [N]     f32 (f64 when dy is f64)
  ConstTensor inverse;  // [N]     dtype of gain
  Tensor dz;            // [T, N]  out, dtype of dy; may be dy or z
  Tensor doffset;       // [N]     in/out, dtype of gain
  Write write;          // of doffset
};

inline void Check(const MagnitudeGainArgs& args) {
  ExpectDType("magnitude squares", args.squares, {DType::kF64, DType::kF32});
  const DType dtype = args.squares.dtype;
  const int64_t n = args.squares.shape.rows();
  ExpectMatrix("magnitude squares", args.squares, dtype, n, 2);
  ExpectFloat("magnitude offset", args.offset);
  CHECK(AccumulateOfDType(args.offset.dtype) == dtype)
      << "magnitude offset: " << args.offset.dtype << " beside squares in " << dtype;
  ExpectElements("magnitude offset", args.offset, args.offset.dtype, n);
  ExpectElements("magnitude gain", args.gain, dtype, n);
  ExpectElements("magnitude inverse", args.inverse, dtype, n);
}

inline void Check(const MagnitudeForwardArgs& args) {
  ExpectFloat("magnitude z", args.z);
  const int64_t n = ExpectColumns("magnitude z", args.z);
  ExpectElements("magnitude gain", args.gain, AccumulateOfDType(args.z.dtype), n);
  ExpectMatrix("magnitude y", args.y, args.z.dtype, args.z.shape.rows(), n);
}

inline void Check(const MagnitudeBackwardArgs& args) {
  ExpectFloat("magnitude dy", args.dy);
  const int64_t n = ExpectColumns("magnitude dy", args.dy), t = args.dy.shape.rows();
  const DType dtype = AccumulateOfDType(args.dy.dtype);
  ExpectMatrix("magnitude z", args.z, args.dy.dtype, t, n);
  ExpectElements("magnitude gain", args.gain, dtype, n);
  ExpectElements("magnitude inverse", args.inverse, dtype, n);
  ExpectMatrix("magnitude dz", args.dz, args.dy.dtype, t, n);
  ExpectElements("magnitude doffset", args.doffset, dtype, n);
}

}  // namespace trainyard
