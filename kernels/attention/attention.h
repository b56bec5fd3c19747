// Grouped-query attention of each sequence's queries over its keys and values.
//
//   per sequence and query head h, with key/value head h / (a/g), over the keys j that i sees:
//   t[i,j]   = scale <q[i], k[j]>
//   s[i,j]   = t[i,j], or c tanh(t[i,j] / c) with a soft cap c
//   lse[i]   = log(exp(sink[h]) + sum_j exp(s[i,j]))  the first term only if there are sinks
//   p[i,j]   = exp(s[i,j] - lse[i])
//   out[i,:] = sum_j p[i,j] v[j,:]
//
//   backward recomputes s and p from lse, with delta[i] = <dout[i], out[i]>:
//   ds[i,j] = p[i,j] (<dout[i], v[j]> - delta[i])
//   dt[i,j] = ds[i,j] scale, and with a soft cap this times 1 - (s[i,j] / c)^2
//   dq[i] = sum_j dt[i,j] k[j]   dk[j] = sum_i dt[i,j] q[i]   dv[j] = sum_i p[i,j] dout[i]
//   dsink[h] = - sum_i exp(sink[h] - lse[i]) delta[i]         over all sequences
//   where dk and dv also sum over the a/g query heads of their group.
//
// With dropout of the probabilities, z[i,j] is 1 / (1 - p) or 0 (dropout_key.h), and z[i,j] v[j,:]
// and z[i,j] dout[i,:] take the places of v[j,:] and dout[i,:] in these formulas, except for delta.
// The number of an element is ((sample * heads + head) * S + i) * S + j, with the sample in the
// global batch, the heads of all ranks, and the positions i and j in the whole sequence.
//
// attention_mask.h defines the keys that a query sees. A query that sees no key has out 0, the sink
// or minus infinity as lse, and no gradients.
//
// The S x S matrix is never stored. Sums are taken in f32 (f64 when q is f64). With bf16 tensors a
// device may round p and dt to bf16 before it multiplies them, and may flush denormals, as tensor
// cores and CPUs with AVX512_BF16 do. So results differ between kinds of devices. Bitwise
// deterministic, on the CPU for any thread count; backward is not if
// AttentionBackwardArgs::deterministic is false.
//
// Letters: B sequences, S tokens of each, a query heads, g key/value heads, d head dim of queries
// and keys, e of values. Sources: Dao et al. 2022, arXiv:2205.14135; groups: Ainslie et al. 2023,
// arXiv:2305.13245; sinks as a learned logit: OpenAI 2025, arXiv:2508.10925, section 2.2; soft cap:
// Gemma 2, arXiv:2408.00118, section 2.

#pragma once

#include "kernels/attention/attention_mask.h"
#include "kernels/device/expect.h"
#include "kernels/device/matrix_view.h"
#include "kernels/elementwise/dropout_key.h"

namespace trainyard {

struct AttentionDims {
  int64_t sequence;     // S
  int64_t heads;        // a
  int64_t kv_heads;     // g, divides a
  int64_t head_dim;     // d, 1 to 256
  int64_t value_dim;    // e, 1 to 256
  double scale;         // positive, usually 1 / sqrt(d)
  double soft_cap = 0;  // c; 0: none
  AttentionMask mask = {};

  int64_t query_columns() const { return heads * head_dim; }
  int64_t key_columns() const { return kv_heads * head_dim; }
  int64_t value_columns() const { return kv_heads * value_dim; }
  int64_t out_columns() const { return heads * value_dim; }
};

// Dropout of the probabilities.
struct AttentionDropout {
  DropoutPlace place = {};
  int64_t first_head = 0;  // Number of the first query head among the heads of all ranks.
  int64_t heads = 0;       // Query heads of all ranks.
  int64_t sequence = 0;    // Tokens of a sequence on all ranks.
};

// q, k and v may be columns of one packed projection, and their gradients of another.
struct AttentionForwardArgs {
  ConstMatrixView q;  // [B S, a d]  f64 | f32 | bf16
  ConstMatrixView k;  // [B S, g d]  dtype of q
  ConstMatrixView v;  // [B S, g e]  dtype of q
  AttentionDims dims;
  Tensor out;              // [B S, a e]  out, dtype of q
  Tensor lse;              // [B, a, S]   out, f32 (f64 when q is f64); kept for backward
  ConstTensor sinks = {};  // [a]         dtype of q; without data: none
  // Positions in the sequence: where the row's document begins, and one past its end. Without data:
  // 0 and S. begin <= the row's position < end. Documents follow one another, so neither decreases
  // from row to row.
  ConstTensor document_begins = {};  // [B, S]  i32
  ConstTensor document_ends = {};    // [B, S]  i32
  // Of dropout: the number of each row's sample in the global batch. Without data: no dropout.
  ConstTensor samples = {};          // [B, S]  i32
  const StepState* state = nullptr;  // device memory
  AttentionDropout dropout = {};
};

struct AttentionBackwardArgs {
  ConstMatrixView q;  // As in forward.
  ConstMatrixView k;
  ConstMatrixView v;
  ConstTensor out;   // [B S, a e]  the forward output
  ConstTensor lse;   // [B, a, S]   the forward output
  ConstTensor dout;  // [B S, a e]  dtype of q
  AttentionDims dims;
  MatrixView dq;  // [B S, a d]  out, dtype of q, overwritten; aliases no input
  MatrixView dk;  // [B S, g d]  the same
  MatrixView dv;  // [B S, g e]  the same
  // False: a device may add to dq in an order that differs from call to call. This takes less time
  // and memory on Hopper.
  bool deterministic = true;
  ConstTensor sinks = {};  // As in forward.
  ConstTensor document_begins = {};
  ConstTensor document_ends = {};
  ConstTensor samples = {};
  const StepState* state = nullptr;
  AttentionDropout dropout = {};
  Tensor dsinks = {};  // [a]  in/out, f32 (f64 when q is f64); given if and only if sinks are
  Write write_dsinks = Write::kOverwrite;
};

// Whether the call has neither documents, nor dropout, nor a soft cap. Libraries have this form,
// for every mask; sinks can be added to their results (cuda/attention_sinks.h).
template <typename Args>
bool IsPlain(const Args& args) {
  return args.dims.soft_cap == 0 && args.document_begins.data == nullptr &&
         args.document_ends.data == nullptr && args.samples.data == nullptr;
}

inline void Check(const AttentionDims& dims) {
  CHECK(dims.sequence > 0) << "attention sequence: " << dims.sequence << " tokens";
  CHECK(dims.heads > 0 && dims.kv_heads > 0 && dims.heads % dims.kv_heads == 0)
      << "attention heads: " << dims.heads << " query, " << dims.kv_heads << " key";
  CHECK(dims.head_dim > 0 && dims.head_dim <= 256)
      << "attention head_dim: " << dims.head_dim << ", legal are 1 to 256";
  CHECK(dims.value_dim > 0 && dims.value_dim <= 256)
      << "attention value_dim: " << dims.value_dim << ", legal are 1 to 256";
  CHECK(dims.scale > 0) << "attention scale: " << dims.scale << ", must be positive";
  CHECK(dims.soft_cap >= 0) << "attention soft_cap: " << dims.soft_cap
                            << ", legal are 0 (none) and positive";
  Check(dims.mask);
}

// The rows of k and v. They are as many as those of q, but for a part that says otherwise.
template <typename Args>
int64_t KeyRows(const Args& args) {
  if constexpr (requires { args.part; }) {
    return args.q.rows / args.dims.sequence * args.part.KeyRows(args.dims.sequence);
  }
  return args.q.rows;
}

// Checks the arguments that forward and backward share, whole or in parts.
template <typename Args>
void CheckAttentionInputs(const Args& args) {
  const AttentionDims& dims = args.dims;
  Check(dims);
  const DType dtype = args.q.dtype;
  const int64_t rows = args.q.rows;
  CHECK(dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kBF16)
      << "attention q: wanted f64 or f32 or bf16, got " << args.q;
  CHECK(rows > 0 && rows % dims.sequence == 0)
      << "attention sequence: " << dims.sequence << " does not divide the rows of q " << args.q;
  ExpectView("attention q", args.q, dtype, rows, dims.query_columns());
  const int64_t key_rows = KeyRows(args);
  ExpectView("attention k", args.k, dtype, key_rows, dims.key_columns());
  ExpectView("attention v", args.v, dtype, key_rows, dims.value_columns());
  ExpectElements("attention lse", args.lse, AccumulateOfDType(dtype), rows * dims.heads);
  if (args.sinks.data != nullptr) {
    ExpectElements("attention sinks", args.sinks, dtype, dims.heads);
  }
  if (args.document_begins.data != nullptr) {
    ExpectElements("attention document_begins", args.document_begins, DType::kI32, rows);
  }
  if (args.document_ends.data != nullptr) {
    ExpectElements("attention document_ends", args.document_ends, DType::kI32, rows);
  }
  if (args.samples.data == nullptr) return;
  const AttentionDropout& dropout = args.dropout;
  ExpectElements("attention samples", args.samples, DType::kI32, rows);
  Check("attention dropout", dropout.place);
  CHECK(args.state != nullptr) << "attention state: none";
  CHECK(dropout.first_head >= 0 && dropout.first_head + dims.heads <= dropout.heads)
      << "attention dropout heads: " << dims.heads << " from " << dropout.first_head << " of "
      << dropout.heads;
}

// Checks the arguments for gradients of sinks, of backward, whole or in parts.
template <typename Args>
void CheckSinkGradient(const Args& args) {
  CHECK((args.sinks.data == nullptr) == (args.dsinks.data == nullptr))
      << "attention dsinks: " << (args.sinks.data == nullptr ? "without" : "missing beside")
      << " sinks";
  if (args.sinks.data == nullptr) return;
  ExpectElements("attention dsinks", args.dsinks, AccumulateOfDType(args.q.dtype), args.dims.heads);
}

inline void Check(const AttentionForwardArgs& args) {
  CheckAttentionInputs(args);
  ExpectMatrix("attention out", args.out, args.q.dtype, args.q.rows, args.dims.out_columns());
}

inline void Check(const AttentionBackwardArgs& args) {
  CheckAttentionInputs(args);
  CheckSinkGradient(args);
  const DType dtype = args.q.dtype;
  const int64_t rows = args.q.rows;
  ExpectMatrix("attention out", args.out, dtype, rows, args.dims.out_columns());
  ExpectMatrix("attention dout", args.dout, dtype, rows, args.dims.out_columns());
  ExpectView("attention dq", args.dq, dtype, rows, args.dims.query_columns());
  ExpectView("attention dk", args.dk, dtype, rows, args.dims.key_columns());
  ExpectView("attention dv", args.dv, dtype, rows, args.dims.value_columns());
}

}  // namespace trainyard
