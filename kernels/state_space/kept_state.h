// The convolution of causal_conv.h and the state space of state_scan.h, token by token, for texts
// that grow from call to call. No gradients.
//
// rows[t] = i R + p says that token t is at position p of text i. The tokens of a text follow one
// another. Position 0 begins the text anew; every other token goes on from what the tokens before
// it have left in `kept`. rows[t] = -1: nobody reads token t, and its y is 0.
//
// Letters: as in the two headers; R rows of a text. Sums are taken in f32 (f64 for f64). A text's
// results have the same bits for any thread count, and beside any other texts.

#pragma once

#include "kernels/state_space/causal_conv.h"
#include "kernels/state_space/state_scan.h"

namespace trainyard {

struct KeptConvArgs {
  ConstTensor x;       // [T, C]  f64 | f32 | bf16
  ConstTensor weight;  // [C, K]  dtype of x; 2 <= K <= kMaxConvTaps; may be [C, 1, K]
  ConstTensor bias;    // [C]     dtype of x
  ConstTensor rows;    // [T]     i32
  int64_t text_rows;   // R
  Tensor kept;         // [texts, (K-1) C]  in/out, dtype of x: the last rows of each text
  Tensor y;            // [T, C]            out, dtype of x; not x
};

struct KeptScanArgs {
  ConstTensor xbc;  // As in StateScanForwardArgs.
  ConstTensor dt;
  ConstTensor dt_bias;
  ConstTensor a_log;
  ConstTensor d;
  StateDims dims;     // `sequence` is not used.
  ConstTensor rows;   // [T]  i32
  int64_t text_rows;  // R
  Tensor kept;        // [texts, H N P]  in/out, f32 (f64 when xbc is f64): the state of each text
  Tensor y;           // [T, H P]        out, dtype of xbc
};

// The place of a token.
struct KeptPlace {
  int64_t text;
  bool begins;

  constexpr KeptPlace(int32_t row, int64_t text_rows)
      : text(row < 0 ? -1 : row / text_rows), begins(row >= 0 && row % text_rows == 0) {}
};

inline void Check(const KeptConvArgs& args) {
  ExpectFloat("kept_conv x", args.x);
  const int64_t c = ExpectColumns("kept_conv x", args.x), t = args.x.shape.rows();
  const int64_t k = ExpectColumns("kept_conv weight", args.weight);
  CHECK(k >= 2 && k <= kMaxConvTaps)
      << "kept_conv weight: wanted 2 to " << kMaxConvTaps << " taps, got " << args.weight.shape;
  CHECK(args.text_rows > 0) << "kept_conv text_rows: " << args.text_rows;
  ExpectElements("kept_conv weight", args.weight, args.x.dtype, c * k);
  ExpectElements("kept_conv bias", args.bias, args.x.dtype, c);
  ExpectElements("kept_conv rows", args.rows, DType::kI32, t);
  ExpectMatrix("kept_conv kept", args.kept, args.x.dtype, args.kept.shape.rows(), (k - 1) * c);
  ExpectMatrix("kept_conv y", args.y, args.x.dtype, t, c);
  CHECK(args.y.data != args.x.data) << "kept_conv y: in the memory of x";
}

inline void Check(const KeptScanArgs& args) {
  const DType dtype = args.xbc.dtype, sums = AccumulateOfDType(dtype);
  ExpectFloat("kept_scan xbc", args.xbc);
  ExpectColumns("kept_scan xbc", args.xbc);
  const int64_t t = args.xbc.shape.rows();
  StateDims dims = args.dims;
  dims.sequence = t;
  Check(dims, t);
  CHECK(args.text_rows > 0) << "kept_scan text_rows: " << args.text_rows;
  ExpectMatrix("kept_scan xbc", args.xbc, dtype, t, dims.columns());
  ExpectMatrix("kept_scan dt", args.dt, dtype, t, dims.heads);
  ExpectElements("kept_scan dt_bias", args.dt_bias, sums, dims.heads);
  ExpectElements("kept_scan a_log", args.a_log, sums, dims.heads);
  ExpectElements("kept_scan d", args.d, sums, dims.heads);
  ExpectElements("kept_scan rows", args.rows, DType::kI32, t);
  ExpectMatrix("kept_scan kept", args.kept, sums, args.kept.shape.rows(), dims.state_columns());
  ExpectMatrix("kept_scan y", args.y, dtype, t, dims.inner());
}

}  // namespace trainyard
