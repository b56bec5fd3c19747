// Attention of some rows of queries over some rows of keys and values, perhaps another rank's: what
// attention over sequences that ranks share out is made of. Parts whose rows of keys and values are
// disjoint merge into attention over all of them:
//
//   out', lse' = attention of the part, as in attention.h, over the rows that a query sees
//   kOverwrite: out = out', lse = lse'
//   kAdd:       lse = log(exp(lse) + exp(lse')),
//               out = exp(lse_before - lse) out + exp(lse' - lse) out'
//
//   backward is that of attention.h, from the out and lse of all parts together: its dq, and its dk
//   and dv, add up over the parts.
//
// In each sequence, query q_begin + i sees keys kv_begin + j for j <= i when causal, else for all
// j. Rows out of the ranges of a part are neither read nor written. Sums are taken in f32 (f64 for
// f64). Letters: B sequences, L rows of each on this rank, a, g, d as in attention.h.
// Source: Liu et al. 2023, arXiv:2310.01889; merging: Dao et al. 2022, arXiv:2205.14135.
// Bitwise deterministic, on the CPU for any thread count; the order of the parts matters to
// rounding.

#pragma once

#include "kernels/attention.h"

namespace trainyard {

// Rows [q_begin, q_begin + q_rows) and [kv_begin, kv_begin + kv_rows) of each sequence.
struct AttentionPart {
  int64_t q_begin;
  int64_t q_rows;
  int64_t kv_begin;
  int64_t kv_rows;
  bool causal;  // only with q_rows == kv_rows
};

struct AttentionPartForwardArgs {
  ConstTensor q;       // [B L, >= a d]  f64 | f32 | bf16; begins with the query heads
  ConstTensor kv;      // [B L, 2 g d]   dtype of q; key heads, then value heads
  AttentionDims dims;  // sequence is L
  AttentionPart part;
  Tensor out;   // [B L, a d]  in/out, f32 (f64 when q is f64)
  Tensor lse;   // [B, a, L]   in/out, likewise
  Write write;  // kAdd: merges into out and lse.
};

struct AttentionPartBackwardArgs {
  ConstTensor q;       // [B L, >= a d]  the forward input
  ConstTensor kv;      // [B L, 2 g d]   the forward input
  ConstTensor out;     // [B L, a d]     the merged output of all parts, in the dtype of q
  ConstTensor lse;     // [B, a, L]      likewise, f32 (f64 when q is f64)
  ConstTensor dout;    // [B L, a d]     dtype of q
  AttentionDims dims;  // sequence is L
  AttentionPart part;
  Tensor dq;   // [B L, a d]    in/out, f32 (f64 when q is f64); rows of the part
  Tensor dkv;  // [B L, 2 g d]  in/out, likewise
  Write write_dq;
  Write write_dkv;
};

inline void Check(const AttentionPart& part, int64_t rows) {
  const auto& [q_begin, q_rows, kv_begin, kv_rows, causal] = part;
  CHECK(q_begin >= 0 && q_rows > 0 && q_begin + q_rows <= rows)
      << "attention_part q_begin: " << q_rows << " rows from " << q_begin << " of " << rows;
  CHECK(kv_begin >= 0 && kv_rows > 0 && kv_begin + kv_rows <= rows)
      << "attention_part kv_begin: " << kv_rows << " rows from " << kv_begin << " of " << rows;
  CHECK(!causal || q_rows == kv_rows)
      << "attention_part causal: " << q_rows << " rows of q, " << kv_rows << " of kv";
}

// Of forward and backward alike.
template <typename Args>
void CheckInputs(const Args& args) {
  const auto& [s, a, g, d, scale] = args.dims;
  Check(args.dims);
  const int64_t columns = ExpectColumns("attention_part q", args.q), rows = args.q.shape.rows();
  ExpectFloat("attention_part q", args.q);
  CHECK(columns >= a * d) << "attention_part q: wanted " << a * d << " columns or more, got "
                          << args.q.shape;
  CHECK(rows % s == 0) << "attention_part sequence: " << s << " does not divide the rows of q "
                       << args.q.shape;
  ExpectMatrix("attention_part kv", args.kv, args.q.dtype, rows, 2 * g * d);
  Check(args.part, s);
  ExpectElements("attention_part lse", args.lse, AccumulateOfDType(args.q.dtype), rows * a);
}

inline void Check(const AttentionPartForwardArgs& args) {
  CheckInputs(args);
  ExpectMatrix("attention_part out", args.out, AccumulateOfDType(args.q.dtype), args.q.shape.rows(),
               args.dims.heads * args.dims.head_dim);
}

inline void Check(const AttentionPartBackwardArgs& args) {
  CheckInputs(args);
  const int64_t rows = args.q.shape.rows(), columns = args.dims.heads * args.dims.head_dim;
  const DType dtype = args.q.dtype;
  ExpectMatrix("attention_part out", args.out, dtype, rows, columns);
  ExpectMatrix("attention_part dout", args.dout, dtype, rows, columns);
  ExpectMatrix("attention_part dq", args.dq, AccumulateOfDType(dtype), rows, columns);
  ExpectMatrix("attention_part dkv", args.dkv, AccumulateOfDType(dtype), rows,
               2 * args.dims.kv_heads * args.dims.head_dim);
}

}  // namespace trainyard
