// Causal grouped-query self-attention, with or without rotary positions.

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
};

class Attention {
 public:
  // `qkv` gives query, key and value heads in this order, `out` takes the query heads' results.
  Attention(const AttentionOptions& options, ColumnLinear qkv, RowLinear out);
  // x [T, D] to [T, D]; T is a whole number of sequences.
  Value operator()(Recorder& recorder, Value x) const;

 private:
  AttentionOptions options_;
  ColumnLinear qkv_;
  RowLinear out_;
};

}  // namespace trainyard
