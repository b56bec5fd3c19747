#include "kernels/latent_heads.h"

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/output_like.h"

namespace trainyard::ops {
namespace {

// Inputs: dqkv, cos, sin. Outputs: dq, dkv, dk_rope.
class LatentHeadsBackwardOp final : public Op {
 public:
  explicit LatentHeadsBackwardOp(const Heads& heads) : heads_(heads) {}
  absl::string_view name() const override { return "latent_heads_backward"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(LatentHeadsBackwardArgs{.dqkv = binder.tensor(instance.inputs[0]),
                                                 .cos = binder.tensor(instance.inputs[1]),
                                                 .sin = binder.tensor(instance.inputs[2]),
                                                 .heads = heads_.heads,
                                                 .sequence = heads_.sequence,
                                                 .dq = binder.tensor(instance.outputs[0]),
                                                 .dkv = binder.tensor(instance.outputs[1]),
                                                 .dk_rope = binder.tensor(instance.outputs[2])});
  }

 private:
  const Heads heads_;
};

// Inputs: q, kv, k_rope, cos, sin. Output: qkv.
class LatentHeadsOp final : public Op {
 public:
  explicit LatentHeadsOp(const Heads& heads) : heads_(heads) {}
  absl::string_view name() const override { return "latent_heads"; }
  std::string attributes() const override { return ToString(heads_); }
  bool is_cheap() const override { return true; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(LatentHeadsForwardArgs{.q = binder.tensor(instance.inputs[0]),
                                                .kv = binder.tensor(instance.inputs[1]),
                                                .k_rope = binder.tensor(instance.inputs[2]),
                                                .cos = binder.tensor(instance.inputs[3]),
                                                .sin = binder.tensor(instance.inputs[4]),
                                                .heads = heads_.heads,
                                                .sequence = heads_.sequence,
                                                .qkv = binder.tensor(instance.outputs[0])});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const std::vector<Value> grads =
        recorder.Emit(std::make_shared<LatentHeadsBackwardOp>(heads_),
                      {output_grads[0], instance.inputs[3], instance.inputs[4]},
                      {OutputLike(recorder, instance.inputs[0], "dq"),
                       OutputLike(recorder, instance.inputs[1], "dkv"),
                       OutputLike(recorder, instance.inputs[2], "dk_rope")});
    return {grads[0], grads[1], grads[2], {}, {}};
  }

 private:
  Heads heads_;
};

}  // namespace

Value LatentHeads(Recorder& recorder, const LatentParts& parts, const Heads& heads,
                  const RopeTable& table) {
  const ValueInfo q = recorder.info(parts.q), k_rope = recorder.info(parts.k_rope);
  CHECK(heads.kv_heads == heads.heads && q.shape.back() == heads.query_columns())
      << "latent_heads: q " << q << " for " << ToString(heads);
  const Rotation rotation = RopeRotation(recorder, heads.sequence, k_rope.shape.back(), table);
  return recorder.Emit(
      std::make_shared<LatentHeadsOp>(heads),
      {parts.q, parts.kv, parts.k_rope, rotation.cos, rotation.sin},
      {{.shape = {q.shape[0], heads.columns()}, .dtype = q.dtype, .name = "qkv"}})[0];
}

}  // namespace trainyard::ops
