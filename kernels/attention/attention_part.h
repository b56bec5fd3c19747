// Attention of some rows of queries over some rows of keys and values, which may come from another
// rank. Attention over sequences that ranks divide consists of such parts. Parts with disjoint rows
// of keys and values merge into attention over all of these rows:
//
//   out', lse' = attention of the part, as in attention.h, over the rows that a query sees
//   kOverwrite: out = out', lse = lse'
//   kAdd:       lse = log(exp(lse) + exp(lse')),
//               out = exp(lse_before - lse) out + exp(lse' - lse) out'
//
// In backward, out and lse are those of all parts together. The formulas are those of attention.h;
// dq, dk and dv add up over the parts.
//
// Query q_begin + i stands at position q_position + i of its sequence, and key kv_begin + j stands
// at position kv_position + j. The part's mask and documents use these positions. kAdd does not
// change a query that sees none of the part's keys. Sinks belong to one part of each query. Rows
// outside a part are neither read nor written. Sums are taken in f32 (f64 for f64).
//
// With bf16 tensors a device may round each part's out' and gradients to bf16 before it adds them
// up.
//
// Forward may have keys and values in tensors with another number of rows of each sequence than the
// queries' (AttentionPart::kv_sequence), as a text's newest tokens and its kept keys are.
//
// Letters: B sequences, L rows of each on this rank; a, g, d, e as in attention.h. Bitwise
// deterministic as attention.h says; the order of the parts affects rounding. Source:
// Liu et al. 2023, arXiv:2310.01889; merging: Dao et al. 2022, arXiv:2205.14135.

#pragma once

#include "kernels/attention/attention.h"

namespace trainyard {

// The rows [q_begin, q_begin + q_rows) of queries and [kv_begin, kv_begin + kv_rows) of keys and
// values of each sequence.
struct AttentionPart {
  int64_t q_begin;
  int64_t q_rows;
  int64_t kv_begin;
  int64_t kv_rows;
  AttentionMask mask = {};
  int64_t q_position = 0;
  int64_t kv_position = 0;
  int64_t kv_sequence = 0;  // Rows of keys and values of each sequence; 0: L. Forward only.

  TRAINYARD_HOST_DEVICE int64_t KeyRows(int64_t sequence) const {
    return kv_sequence > 0 ? kv_sequence : sequence;
  }
};

struct AttentionPartForwardArgs {
  ConstMatrixView q;   // [B L, a d]  f64 | f32 | bf16
  ConstMatrixView k;   // [B L, g d]  dtype of q; kv_sequence in place of L, and so for v
  ConstMatrixView v;   // [B L, g e]  dtype of q
  AttentionDims dims;  // sequence is L; the mask is the part's
  AttentionPart part;
  Tensor out;                        // [B L, a e]  in/out, f32 (f64 when q is f64)
  Tensor lse;                        // [B, a, L]   in/out, the same
  Write write;                       // kAdd: merges into out and lse
  ConstTensor sinks = {};            // [a]     dtype of q; without data: none in this part
  ConstTensor document_begins = {};  // [B, L]  i32: of the queries' rows, as in attention.h
  ConstTensor document_ends = {};    // [B, L]  i32
  ConstTensor samples = {};          // [B, L]  i32: of the queries' rows, as in attention.h
  const StepState* state = nullptr;
  AttentionDropout dropout = {};
};

struct AttentionPartBackwardArgs {
  ConstMatrixView q;  // As in forward.
  ConstMatrixView k;
  ConstMatrixView v;
  ConstTensor out;     // [B L, a e]     the merged output of all parts, dtype of q
  ConstTensor lse;     // [B, a, L]      the merged one, f32 (f64 when q is f64)
  ConstTensor dout;    // [B L, a e]     dtype of q
  AttentionDims dims;  // sequence is L; the mask is the part's
  AttentionPart part;
  MatrixView dq;  // [B L, a d]  in/out, f32 (f64 when q is f64); rows of the part
  MatrixView dk;  // [B L, g d]  in/out, the same
  MatrixView dv;  // [B L, g e]  in/out, the same
  Write write_dq;
  Write write_dkv;
  bool deterministic = true;  // As in AttentionBackwardArgs.
  ConstTensor sinks = {};     // As in forward.
  ConstTensor document_begins = {};
  ConstTensor document_ends = {};
  ConstTensor samples = {};
  const StepState* state = nullptr;
  AttentionDropout dropout = {};
  Tensor dsinks = {};  // [a]  in/out, f32 (f64 when q is f64); given if and only if sinks are
  Write write_dsinks = Write::kOverwrite;
};

// `rows` are those of one sequence.
inline void Check(const AttentionPart& part, int64_t rows) {
  const int64_t key_rows = part.KeyRows(rows);
  CHECK(part.q_begin >= 0 && part.q_rows > 0 && part.q_begin + part.q_rows <= rows)
      << "attention_part q_begin: " << part.q_rows << " rows from " << part.q_begin << " of "
      << rows;
  CHECK(part.kv_begin >= 0 && part.kv_rows > 0 && part.kv_begin + part.kv_rows <= key_rows)
      << "attention_part kv_begin: " << part.kv_rows << " rows from " << part.kv_begin << " of "
      << key_rows;
  CHECK(part.q_position >= 0 && part.kv_position >= 0)
      << "attention_part q_position: " << part.q_position << " and kv_position " << part.kv_position
      << ", legal are 0 and up";
  Check(part.mask);
}

inline void Check(const AttentionPartForwardArgs& args) {
  CheckAttentionInputs(args);
  Check(args.part, args.dims.sequence);
  ExpectMatrix("attention out", args.out, AccumulateOfDType(args.q.dtype), args.q.rows,
               args.dims.out_columns());
}

inline void Check(const AttentionPartBackwardArgs& args) {
  CheckAttentionInputs(args);
  CheckSinkGradient(args);
  Check(args.part, args.dims.sequence);
  CHECK(args.part.kv_sequence == 0)
      << "attention_part kv_sequence: " << args.part.kv_sequence << " in backward, legal is 0";
  const int64_t rows = args.q.rows;
  const DType dtype = args.q.dtype, sums = AccumulateOfDType(dtype);
  ExpectMatrix("attention out", args.out, dtype, rows, args.dims.out_columns());
  ExpectMatrix("attention dout", args.dout, dtype, rows, args.dims.out_columns());
  ExpectView("attention dq", args.dq, sums, rows, args.dims.query_columns());
  ExpectView("attention dk", args.dk, sums, rows, args.dims.key_columns());
  ExpectView("attention dv", args.dv, sums, rows, args.dims.value_columns());
}

}  // namespace trainyard
