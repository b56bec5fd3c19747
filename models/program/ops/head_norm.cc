#include "kernels/norms/head_norm.h"

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// If one gain is frozen, its gradient is memory, which is written in the same way.
class HeadNormBackwardOp final : public NamedOp<HeadNormBackwardOp> {
 public:
  enum Input { kDy, kQkv, kQueryGain, kKeyGain, kRstd, kInputs };
  enum Output { kDqkv, kDqueryGain, kDkeyGain, kOutputs };
  HeadNormBackwardOp(const Heads& heads, double gain_offset, bool query_trainable)
      : heads_(heads), gain_offset_(gain_offset), query_trainable_(query_trainable) {}
  absl::string_view name() const override { return "head_norm_backward"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(HeadNormBackwardArgs{
        .dy = binder.tensor(instance.inputs[kDy]),
        .x = binder.tensor(instance.inputs[kQkv]),
        .q_gain = binder.tensor(instance.inputs[kQueryGain]),
        .k_gain = binder.tensor(instance.inputs[kKeyGain]),
        .rstd = binder.tensor(instance.inputs[kRstd]),
        .heads = heads_.heads,
        .kv_heads = heads_.kv_heads,
        .dx = binder.tensor(instance.outputs[kDqkv]),
        .dq_gain = binder.tensor(instance.outputs[kDqueryGain]),
        .dk_gain = binder.tensor(instance.outputs[kDkeyGain]),
        .write = binder.write(instance.outputs[query_trainable_ ? kDqueryGain : kDkeyGain]),
        .gain_offset = gain_offset_});
  }

 private:
  const Heads heads_;
  const double gain_offset_;
  const bool query_trainable_;
};

class HeadNormOp final : public NamedOp<HeadNormOp> {
 public:
  enum Input { kQkv, kQueryGain, kKeyGain, kInputs };
  enum Output { kNormalised, kRstd, kOutputs };
  HeadNormOp(const Heads& heads, const NormOptions& options) : heads_(heads), options_(options) {}
  absl::string_view name() const override { return "head_norm"; }
  bool is_cheap() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat(ToString(heads_), " ", ToString(options_));
  }
  bool MayAlias(int output, int input) const override {
    return output == kNormalised && input == kQkv;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(HeadNormForwardArgs{.x = binder.tensor(instance.inputs[kQkv]),
                                             .q_gain = binder.tensor(instance.inputs[kQueryGain]),
                                             .k_gain = binder.tensor(instance.inputs[kKeyGain]),
                                             .heads = heads_.heads,
                                             .kv_heads = heads_.kv_heads,
                                             .eps = options_.eps,
                                             .y = binder.tensor(instance.outputs[kNormalised]),
                                             .rstd = binder.tensor(instance.outputs[kRstd]),
                                             .gain_offset = options_.gain_offset});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value qkv = instance.inputs[kQkv], q = instance.inputs[kQueryGain],
                k = instance.inputs[kKeyGain];
    const ValueInfo info = recorder.info(qkv);
    const Value dqkv = recorder.Emit(
        std::make_shared<HeadNormBackwardOp>(heads_, options_.gain_offset, recorder.IsTrainable(q)),
        {output_grads[kNormalised], qkv, q, k, instance.outputs[kRstd]},
        {{.shape = info.shape, .dtype = info.dtype, .name = "dqkv"},
         recorder.GradientOutput(q),
         recorder.GradientOutput(k)})[0];
    return {dqkv, {}, {}};
  }

 private:
  Heads heads_;
  NormOptions options_;
};

}  // namespace

Value HeadNorm(Recorder& recorder, Value qkv, const HeadGains& gains, const Heads& heads) {
  const ValueInfo info = recorder.info(qkv);
  for (Value gain : {gains.query, gains.key}) {
    CHECK(recorder.info(gain).shape == Shape({heads.head_dim}))
        << "head_norm: gain " << recorder.info(gain) << " for " << info;
  }
  return recorder.Emit(std::make_shared<HeadNormOp>(heads, gains.options),
                       {qkv, gains.query, gains.key},
                       {{.shape = info.shape, .dtype = info.dtype, .name = "norm"},
                        {.shape = {info.shape[0], heads.heads + heads.kv_heads},
                         .dtype = recorder.precision().statistic,
                         .name = "rstd",
                         .differentiable = false}})[0];
}

}  // namespace trainyard::ops
