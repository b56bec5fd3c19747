// Grouped-query self-attention, with or without rotary positions; causal unless its mask says
// otherwise.

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
  std::optional<QkNorm> qk_norm = {};  // Before the rotation.
  ops::AttentionMask mask = {};        // Causal, without a window.
  // A logit for each query head that takes part in the softmax and has no value: [heads], which the
  // layer divides over the tensor ranks as it does the heads (gpt-oss).
  std::optional<ParameterSpec> sinks = {};
  double soft_cap = 0;               // Scores become soft_cap tanh(score / soft_cap); 0: none.
  std::optional<double> scale = {};  // Absent: 1 / sqrt(head_dim).
  int64_t value_head_dim = 0;        // 0: head_dim.
};

class Attention {
 public:
  // `qkv` gives query, key and value heads in this order, `out` takes the query heads' results.
  Attention(const AttentionOptions& options, ColumnLinear qkv, RowLinear out);
  // x [T, D] to [T, D]; T is a whole number of sequences, which documents may share.
  Value operator()(Recorder& recorder, Value x, const ops::DocumentBounds& documents = {}) const;

 private:
  AttentionOptions options_;
  ColumnLinear qkv_;
  RowLinear out_;
};

}  // namespace trainyard
