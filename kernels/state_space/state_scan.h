// The selective state space of Mamba-2, over sequences that are divided into parts. Each head has a
// state, a matrix of N by P, which decays from token to token and takes in each token's values:
//
//   step[t,h]    = clamp(softplus(dt[t,h] + dt_bias[h]), min_step, max_step)
//   a[t,h]       = -exp(a_log[h]) step[t,h]                     the log of the decay
//   S[t,h]       = exp(a[t,h]) S[t-1,h] + B[t,g]^T (step[t,h] x[t,h])
//   y[t,h]       = C[t,g] S[t,h] + d[h] x[t,h]
//
// Head h uses B and C of group g = h / (H/G). A part begins with its `start`, or with zeros. S is
// zero before the first token of a document (document_borders.h).
//
// The kernels divide a part into chunks of tokens. Within a chunk, y is a masked product of
// matrices, as in attention; between chunks, states are passed on:
//
//   c[t]     = sum of a over the chunk's tokens up to t
//   y[t]     = exp(c[t]) C[t] S_start + d x[t]
//              + sum_{s<=t} exp(c[t] - c[s]) (C[t] . B[s]) step[s] x[s]
//   S_end    = exp(c_end) S_start + sum_s exp(c_end - c[s]) B[s]^T (step[s] x[s])
//
// Terms that would pass from one document to another are left out. Backward computes the states
// again. A step that was clamped has no gradient.
//
// Source: Dao & Gu 2024, arXiv:2405.21060, sections 5 to 7. Letters: T tokens in M parts of L, H
// heads, G groups, P head dim, N state dim. Sums and states are in f32 (f64 when x is f64). If x is
// bf16, the CUDA kernels round the operands of their products to bf16, among them the states.
// Bitwise deterministic, on the CPU for any thread count.

#pragma once

#include <limits>

#include "kernels/state_space/document_borders.h"

namespace trainyard {

struct StateDims {
  int64_t heads;     // H
  int64_t groups;    // G, divides H
  int64_t head_dim;  // P
  int64_t state;     // N
  int64_t sequence;  // L: the tokens of a part
  double min_step = 0;
  double max_step = std::numeric_limits<double>::infinity();

  constexpr int64_t inner() const { return heads * head_dim; }
  constexpr int64_t columns() const { return inner() + 2 * groups * state; }
  constexpr int64_t state_columns() const { return heads * state * head_dim; }
};

struct StateScanForwardArgs {
  ConstTensor xbc;         // [T, H P + 2 G N]  f64 | f32 | bf16: x, B and C of each token
  ConstTensor dt;          // [T, H]            dtype of xbc
  ConstTensor dt_bias;     // [H]               f32 (f64 when xbc is f64)
  ConstTensor a_log;       // [H]               the same
  ConstTensor d;           // [H]               the same
  ConstTensor start = {};  // [M, H N P]        f32 (f64 when xbc is f64); without data: zeros
  StateDims dims;
  Tensor y;                             // [T, H P]  out, dtype of xbc
  ConstTensor document_positions = {};  // [T]  i32; without data: documents begin before parts
};

struct StateScanBackwardArgs {
  ConstTensor dy;  // [T, H P]  dtype of xbc
  ConstTensor xbc;
  ConstTensor dt;
  ConstTensor dt_bias;
  ConstTensor a_log;
  ConstTensor d;
  ConstTensor start = {};
  StateDims dims;
  Tensor dxbc;         // [T, H P + 2 G N]  out, dtype of xbc
  Tensor ddt;          // [T, H]            out, dtype of xbc
  Tensor ddt_bias;     // [H]  in/out, f32 (f64 when xbc is f64)
  Tensor da_log;       // [H]  in/out, the same
  Tensor dd;           // [H]  in/out, the same
  Tensor dstart = {};  // [M, H N P]  out, the same; given if and only if start is
  Write write_ddt_bias;
  Write write_da_log;
  Write write_dd;
  ConstTensor document_positions = {};
};

inline void Check(const StateDims& dims, int64_t tokens) {
  CHECK(dims.heads >= 1 && dims.groups >= 1 && dims.heads % dims.groups == 0)
      << "state_scan heads: " << dims.heads << " in " << dims.groups << " groups";
  CHECK(dims.head_dim >= 1 && dims.state >= 1)
      << "state_scan state: " << dims.state << " by " << dims.head_dim;
  CHECK(dims.sequence >= 1 && tokens % dims.sequence == 0)
      << "state_scan sequence: " << dims.sequence << " of " << tokens << " tokens";
  CHECK(dims.min_step >= 0 && dims.min_step <= dims.max_step)
      << "state_scan min_step: " << dims.min_step << " with max_step " << dims.max_step;
}

// Checks the operands that all state ops share. Returns the number of tokens.
template <typename Args>
int64_t CheckStateOperands(const Args& args) {
  const StateDims& dims = args.dims;
  ExpectFloat("state_scan xbc", args.xbc);
  ExpectColumns("state_scan xbc", args.xbc);
  const int64_t tokens = args.xbc.shape.rows();
  const DType dtype = args.xbc.dtype;
  Check(dims, tokens);
  ExpectMatrix("state_scan xbc", args.xbc, dtype, tokens, dims.columns());
  ExpectMatrix("state_scan dt", args.dt, dtype, tokens, dims.heads);
  ExpectElements("state_scan dt_bias", args.dt_bias, AccumulateOfDType(dtype), dims.heads);
  ExpectElements("state_scan a_log", args.a_log, AccumulateOfDType(dtype), dims.heads);
  ExpectDocumentPositions("state_scan document_positions", args.document_positions, tokens);
  return tokens;
}

inline void Check(const StateScanForwardArgs& args) {
  const StateDims& dims = args.dims;
  const int64_t tokens = CheckStateOperands(args), parts = tokens / dims.sequence;
  const DType dtype = args.xbc.dtype, sums = AccumulateOfDType(dtype);
  ExpectElements("state_scan d", args.d, sums, dims.heads);
  ExpectMatrix("state_scan y", args.y, dtype, tokens, dims.inner());
  if (args.start.data == nullptr) return;
  ExpectMatrix("state_scan start", args.start, sums, parts, dims.state_columns());
}

inline void Check(const StateScanBackwardArgs& args) {
  const StateDims& dims = args.dims;
  const int64_t tokens = CheckStateOperands(args), parts = tokens / dims.sequence;
  const DType dtype = args.xbc.dtype, sums = AccumulateOfDType(dtype);
  ExpectElements("state_scan d", args.d, sums, dims.heads);
  ExpectMatrix("state_scan dy", args.dy, dtype, tokens, dims.inner());
  ExpectMatrix("state_scan dxbc", args.dxbc, dtype, tokens, dims.columns());
  ExpectMatrix("state_scan ddt", args.ddt, dtype, tokens, dims.heads);
  ExpectElements("state_scan ddt_bias", args.ddt_bias, sums, dims.heads);
  ExpectElements("state_scan da_log", args.da_log, sums, dims.heads);
  ExpectElements("state_scan dd", args.dd, sums, dims.heads);
  CHECK((args.start.data == nullptr) == (args.dstart.data == nullptr))
      << "state_scan dstart: wanted if and only if there is a start";
  if (args.start.data == nullptr) return;
  ExpectMatrix("state_scan start", args.start, sums, parts, dims.state_columns());
  ExpectMatrix("state_scan dstart", args.dstart, sums, parts, dims.state_columns());
}

}  // namespace trainyard
