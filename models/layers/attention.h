// Grouped-query self-attention, with or without rotary positions. Attention is causal unless the
// mask says otherwise.

#pragma once

#include <optional>

#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "models/program/ops/ops.h"
#include "models/program/recorder.h"

namespace trainyard {

struct AttentionOptions {
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  std::optional<ops::RopeTable> rope;
  std::optional<QkNorm> qk_norm = {};  // Applied before the rotation.
  ops::AttentionMask mask = {};        // Causal, without a window.
  // One logit for each query head: [heads]. The logit takes part in the head's softmax and has no
  // value. The layer divides the logits over the tensor ranks in the same way as the heads
  // (gpt-oss).
  std::optional<ParameterSpec> sinks = {};
  double soft_cap = 0;               // Scores become soft_cap tanh(score / soft_cap); 0: none.
  std::optional<double> scale = {};  // Absent: 1 / sqrt(head_dim).
  int64_t value_head_dim = 0;        // 0: head_dim.
  double dropout = 0;                // As in ops::AttentionForm.
};

class Attention {
 public:
  // `qkv` projects to query, key and value heads, in this order. `out` takes the results of the
  // query heads.
  Attention(const AttentionOptions& options, ColumnLinear qkv, RowLinear out);
  // x [T, D] to [T, D]. T must be a whole number of sequences. A sequence may contain several
  // documents: the given ones or, if none are given, those of the input kDocumentBegins, if the
  // program has this input.
  Value operator()(Recorder& recorder, Value x, const ops::DocumentBounds& documents = {}) const;

 private:
  AttentionOptions options_;
  ColumnLinear qkv_;
  RowLinear out_;
};

}  // namespace trainyard
