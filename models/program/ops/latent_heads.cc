#include "kernels/attention/latent_heads.h"

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/output_like.h"

namespace trainyard::ops {
namespace {

class LatentHeadsBackwardOp final : public NamedOp<LatentHeadsBackwardOp> {
 public:
  enum Input { kDqkv, kCos, kSin, kInputs };
  enum Output { kDq, kDkv, kDkRope, kOutputs };
  explicit LatentHeadsBackwardOp(const Heads& heads) : heads_(heads) {}
  absl::string_view name() const override { return "latent_heads_backward"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Tensor cos = binder.tensor(instance.inputs[kCos]);
    return binder.Kernel(
        LatentHeadsBackwardArgs{.dqkv = binder.tensor(instance.inputs[kDqkv]),
                                .cos = cos,
                                .sin = binder.tensor(instance.inputs[kSin]),
                                .heads = heads_.heads,
                                .sequence = cos.shape.rows(),
                                .dq = binder.tensor(instance.outputs[kDq]),
                                .dkv = binder.tensor(instance.outputs[kDkv]),
                                .dk_rope = binder.tensor(instance.outputs[kDkRope])});
  }

 private:
  const Heads heads_;
};

class LatentHeadsOp final : public NamedOp<LatentHeadsOp> {
 public:
  enum Input { kQ, kKv, kKRope, kCos, kSin, kInputs };
  enum Output { kQkv, kOutputs };
  explicit LatentHeadsOp(const Heads& heads) : heads_(heads) {}
  absl::string_view name() const override { return "latent_heads"; }
  std::string attributes() const override { return ToString(heads_); }
  bool is_cheap() const override { return true; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Tensor cos = binder.tensor(instance.inputs[kCos]);
    return binder.Kernel(LatentHeadsForwardArgs{.q = binder.tensor(instance.inputs[kQ]),
                                                .kv = binder.tensor(instance.inputs[kKv]),
                                                .k_rope = binder.tensor(instance.inputs[kKRope]),
                                                .cos = cos,
                                                .sin = binder.tensor(instance.inputs[kSin]),
                                                .heads = heads_.heads,
                                                .sequence = cos.shape.rows(),
                                                .qkv = binder.tensor(instance.outputs[kQkv])});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const std::vector<Value> grads =
        recorder.Emit(std::make_shared<LatentHeadsBackwardOp>(heads_),
                      {output_grads[kQkv], instance.inputs[kCos], instance.inputs[kSin]},
                      {OutputLike(recorder, instance.inputs[kQ], "dq"),
                       OutputLike(recorder, instance.inputs[kKv], "dkv"),
                       OutputLike(recorder, instance.inputs[kKRope], "dk_rope")});
    return {grads[LatentHeadsBackwardOp::kDq],
            grads[LatentHeadsBackwardOp::kDkv],
            grads[LatentHeadsBackwardOp::kDkRope],
            {},
            {}};
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
