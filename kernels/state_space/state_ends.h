// What ranks that divide a sequence tell each other about the state space of state_scan.h.
//
// StateEnds finds, for each part of a sequence, the state at its end if it began with zeros, and
// the log of its whole decay:
//
//   ends[m]  = [S_end of head 0, ..., of head H-1, then sum_t a[t,h] for each head h]
//
// If a document begins in the part, nothing from before the part reaches its end: the log of the
// decay is minus infinity.
//
// StateStarts chains the ends of all parts of a sequence, and returns the states with which this
// rank's parts begin:
//
//   S[0] = 0,  S[i+1] = exp(decay[i]) S[i] + S_end[i]     for the parts i in the sequence's order
//
// Each rank has the parts r and 2n-1-r of every sequence (kernels/device/sequence_part.h), one
// after the other. `ends` has the rows of all ranks, one rank after another.
//
// Letters: as in state_scan.h; n ranks, W = H N P + H columns of ends. Sums are in f32 (f64 when
// xbc is f64). Bitwise deterministic, on the CPU for any thread count.

#pragma once

#include "kernels/device/sequence_part.h"
#include "kernels/state_space/state_scan.h"

namespace trainyard {

struct StateEndsForwardArgs {
  ConstTensor xbc;  // As in StateScanForwardArgs; C is not read.
  ConstTensor dt;
  ConstTensor dt_bias;
  ConstTensor a_log;
  StateDims dims;
  Tensor ends;  // [M, W]  out, f32 (f64 when xbc is f64)
  ConstTensor document_positions = {};
};

struct StateEndsBackwardArgs {
  ConstTensor dends;  // [M, W]  dtype of sums
  ConstTensor xbc;
  ConstTensor dt;
  ConstTensor dt_bias;
  ConstTensor a_log;
  StateDims dims;
  Tensor dxbc;      // [T, H P + 2 G N]  out, dtype of xbc; zeros for C
  Tensor ddt;       // [T, H]            out, dtype of xbc
  Tensor ddt_bias;  // [H]  in/out, f32 (f64 when xbc is f64)
  Tensor da_log;    // [H]  in/out, the same
  Write write_ddt_bias;
  Write write_da_log;
  ConstTensor document_positions = {};
};

struct StateStartsForwardArgs {
  ConstTensor ends;  // [n M, W]  f64 | f32
  int64_t heads;     // H
  int64_t ranks;     // n
  int64_t rank;      // r
  Tensor starts;     // [M, W - H]  out, dtype of ends; M is even
};

struct StateStartsBackwardArgs {
  ConstTensor dstarts;  // [M, W - H]  f64 | f32
  ConstTensor ends;     // [n M, W]    dtype of dstarts
  int64_t heads;
  int64_t ranks;
  int64_t rank;
  Tensor dends;  // [n M, W]  out, dtype of ends
};

// The row of `ends` that has part `part` of a sequence, of `sequences`.
constexpr int64_t RowOfPart(int64_t ranks, int64_t sequences, int64_t sequence, int64_t part) {
  const bool second = part >= ranks;
  const int64_t owner = second ? 2 * ranks - 1 - part : part;
  return (owner * sequences + sequence) * 2 + (second ? 1 : 0);
}

inline void Check(const StateEndsForwardArgs& args) {
  const StateDims& dims = args.dims;
  const int64_t parts = CheckStateOperands(args) / dims.sequence;
  const DType sums = AccumulateOfDType(args.xbc.dtype);
  ExpectMatrix("state_ends ends", args.ends, sums, parts, dims.state_columns() + dims.heads);
}

inline void Check(const StateEndsBackwardArgs& args) {
  const StateDims& dims = args.dims;
  const int64_t tokens = CheckStateOperands(args), parts = tokens / dims.sequence;
  const DType dtype = args.xbc.dtype, sums = AccumulateOfDType(dtype);
  ExpectMatrix("state_ends dends", args.dends, sums, parts, dims.state_columns() + dims.heads);
  ExpectMatrix("state_ends dxbc", args.dxbc, dtype, tokens, dims.columns());
  ExpectMatrix("state_ends ddt", args.ddt, dtype, tokens, dims.heads);
  ExpectElements("state_ends ddt_bias", args.ddt_bias, sums, dims.heads);
  ExpectElements("state_ends da_log", args.da_log, sums, dims.heads);
}

// The operands that both directions of StateStarts share.
inline void CheckStateStarts(const ConstTensor& ends, const ConstTensor& starts, int64_t heads,
                             const SequencePart& part) {
  ExpectDType("state_starts ends", ends, {DType::kF64, DType::kF32});
  const int64_t width = ExpectColumns("state_starts ends", ends), rows = ends.shape.rows();
  CHECK(part.ranks >= 1 && part.rank >= 0 && part.rank < part.ranks && rows % (2 * part.ranks) == 0)
      << "state_starts rank: " << part.rank << " of " << part.ranks << " with ends " << ends.shape;
  CHECK(heads >= 1 && (width - heads) % heads == 0 && width > heads)
      << "state_starts heads: " << heads << " with ends " << ends.shape;
  ExpectMatrix("state_starts ends", ends, ends.dtype, rows, width);
  ExpectMatrix("state_starts starts", starts, ends.dtype, rows / part.ranks, width - heads);
}

inline void Check(const StateStartsForwardArgs& args) {
  CheckStateStarts(args.ends, args.starts, args.heads, {.ranks = args.ranks, .rank = args.rank});
}

inline void Check(const StateStartsBackwardArgs& args) {
  CheckStateStarts(args.ends, args.dstarts, args.heads, {.ranks = args.ranks, .rank = args.rank});
  ExpectMatrix("state_starts dends", args.dends, args.ends.dtype, args.ends.shape.rows(),
               args.ends.shape.back());
}

}  // namespace trainyard
