#include "models/layers/attention.h"

#include <utility>

namespace trainyard {

Attention::Attention(const AttentionOptions& options, ColumnLinear qkv, RowLinear out)
    : options_(options), qkv_(std::move(qkv)), out_(std::move(out)) {}

Value Attention::operator()(Recorder& recorder, Value x) const {
  const Mesh& mesh = recorder.mesh();
  const ops::Heads heads{.heads = options_.heads / mesh.size(kTensorAxes),
                         .kv_heads = options_.kv_heads / mesh.size(Axis::kTensor),
                         .head_dim = options_.head_dim,
                         .sequence = recorder.part().rows};
  recorder.set_label("attention");
  Value qkv = qkv_(recorder, x);
  if (options_.qk_norm) qkv = (*options_.qk_norm)(recorder, qkv, heads);
  if (options_.rope) qkv = ops::Rope(recorder, qkv, heads, *options_.rope);
  return out_(recorder, ops::Attention(recorder, qkv, heads));
}

}  // namespace trainyard
