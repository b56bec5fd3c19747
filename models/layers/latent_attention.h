// Multi-head latent attention: queries, and keys with values, are projected from vectors that are
// much narrower than all heads together. One rotary key serves all heads of a token.
//
//   q = (norm(x q_a^T)) q_b^T         heads of n + r columns, of which r rotate; or x q^T
//   [c, k_rope] = x kv_a^T            c for all heads' keys and values, k_rope of r columns
//   kv = norm(c) kv_b^T               heads of n columns of the key, e of the value
//   key head h = [kv[h, 0 .. n), rotated k_rope]
//
// q_a and kv_a are narrow, and whole on every tensor rank; q, q_b, kv_b and the output projection
// are divided by heads. The norms have eps 1e-6, whatever the model's other norms have, as in the
// public implementations.
//
// Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.

#pragma once

#include <string>

#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "models/program/ops/ops.h"
#include "models/program/recorder.h"

namespace trainyard {

struct LatentAttentionOptions {
  int64_t hidden;
  int64_t heads;
  int64_t query_rank;  // Width of the vector that the queries are projected from; 0: hidden.
  int64_t kv_rank;     // The same for keys and values.
  int64_t nope_dim;    // n: columns of a query or key head without positions.
  int64_t rope_dim;    // r: columns with rotary positions.
  int64_t value_dim;   // e
  ops::RopeTable rope;
  double scale;     // Of the scores.
  double soft_cap;  // 0: none.
  double dropout;   // As in ops::AttentionForm.
  Init in;          // For weights that read the residual value or a narrow vector.
  Init out;         // For the output projection.
};

class LatentAttention {
 public:
  // `name` is the prefix of the parameters' names: "model.layers.0.self_attn".
  LatentAttention(const std::string& name, const LatentAttentionOptions& options);
  // x [T, D] to [T, D]. T must be a whole number of sequences. Documents are those of the input
  // kDocumentBegins, if the program has this input.
  Value operator()(Recorder& recorder, Value x) const;

 private:
  LatentAttentionOptions options_;
  ParameterSpec q_a_;  // This and q_norm_: used if there is a query_rank.
  RmsNorm q_norm_;
  ColumnLinear q_;  // q_b or q.
  ParameterSpec kv_a_;
  RmsNorm kv_norm_;
  ColumnLinear kv_b_;
  RowLinear out_;
};

}  // namespace trainyard
