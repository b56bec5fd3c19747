#include "models/layers/attention.h"

#include <utility>

namespace trainyard {

Attention::Attention(const AttentionOptions& options, ColumnLinear qkv, RowLinear out)
    : options_(options), qkv_(std::move(qkv)), out_(std::move(out)) {
  CHECK(!options_.qk_norm || options_.value_head_dim == 0 ||
        options_.value_head_dim == options_.head_dim)
      << "attention value_head_dim: " << options_.value_head_dim
      << " with normalised query and key heads, legal is head_dim " << options_.head_dim;
  if (!options_.sinks) return;
  CHECK(options_.sinks->shape == Shape({options_.heads}))
      << "attention sinks: " << options_.sinks->name << ' ' << options_.sinks->shape << " for "
      << options_.heads << " query heads";
  options_.sinks->shard = Shard::Rows(kTensorAxes);
}

Value Attention::operator()(Recorder& recorder, Value x,
                            const ops::DocumentBounds& documents) const {
  const Mesh& mesh = recorder.mesh();
  const ops::Heads heads{.heads = options_.heads / mesh.size(kTensorAxes),
                         .kv_heads = options_.kv_heads / mesh.size(Axis::kTensor),
                         .head_dim = options_.head_dim,
                         .sequence = recorder.part().rows,
                         .value_head_dim = options_.value_head_dim};
  recorder.set_label("attention");
  Value qkv = qkv_(recorder, x);
  // The table is recorded first, so that norm and rotation can be fused (passes/fuse.cc).
  ops::Rotation rotation;
  if (options_.rope) rotation = ops::RopeRotation(recorder, heads, *options_.rope);
  if (options_.qk_norm) qkv = (*options_.qk_norm)(recorder, qkv, heads);
  if (options_.rope) qkv = ops::Rope(recorder, qkv, heads, rotation);
  const bool packed = recorder.Declares(kDocumentBegins);
  const ops::AttentionForm form{
      .mask = options_.mask,
      .soft_cap = options_.soft_cap,
      .scale = options_.scale,
      .sinks = options_.sinks ? recorder.Parameter(*options_.sinks) : Value{},
      .documents = packed && !documents.begins.valid()
                       ? ops::DocumentBounds{.begins = recorder.Read(kDocumentBegins)}
                       : documents,
      .dropout = options_.dropout};
  return out_(recorder, ops::Attention(recorder, qkv, heads, form));
}

}  // namespace trainyard
