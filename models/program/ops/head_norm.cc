#include "kernels/head_norm.h"

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// Inputs: dy, qkv, gains of queries and keys, rstd. Outputs: dqkv, gradients of the gains. If one
// gain is frozen, its output is memory, which is written in the same way.
class HeadNormBackwardOp final : public Op {
 public:
  HeadNormBackwardOp(const Heads& heads, double gain_offset, bool query_trainable)
      : heads_(heads), gain_offset_(gain_offset), query_trainable_(query_trainable) {}
  absl::string_view name() const override { return "head_norm_backward"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(
        HeadNormBackwardArgs{.dy = binder.tensor(instance.inputs[0]),
                             .x = binder.tensor(instance.inputs[1]),
                             .q_gain = binder.tensor(instance.inputs[2]),
                             .k_gain = binder.tensor(instance.inputs[3]),
                             .rstd = binder.tensor(instance.inputs[4]),
                             .heads = heads_.heads,
                             .kv_heads = heads_.kv_heads,
                             .dx = binder.tensor(instance.outputs[0]),
                             .dq_gain = binder.tensor(instance.outputs[1]),
                             .dk_gain = binder.tensor(instance.outputs[2]),
                             .write = binder.write(instance.outputs[query_trainable_ ? 1 : 2]),
                             .gain_offset = gain_offset_});
  }

 private:
  const Heads heads_;
  const double gain_offset_;
  const bool query_trainable_;
};

// Inputs: qkv, gains of queries and keys. Outputs: normalised qkv, rstd.
class HeadNormOp final : public Op {
 public:
  HeadNormOp(const Heads& heads, const NormOptions& options) : heads_(heads), options_(options) {}
  absl::string_view name() const override { return "head_norm"; }
  bool is_cheap() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat(ToString(heads_), " ", ToString(options_));
  }
  bool MayAlias(int output, int input) const override { return output == 0 && input == 0; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(HeadNormForwardArgs{.x = binder.tensor(instance.inputs[0]),
                                             .q_gain = binder.tensor(instance.inputs[1]),
                                             .k_gain = binder.tensor(instance.inputs[2]),
                                             .heads = heads_.heads,
                                             .kv_heads = heads_.kv_heads,
                                             .eps = options_.eps,
                                             .y = binder.tensor(instance.outputs[0]),
                                             .rstd = binder.tensor(instance.outputs[1]),
                                             .gain_offset = options_.gain_offset});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value qkv = instance.inputs[0], q = instance.inputs[1], k = instance.inputs[2];
    const ValueInfo info = recorder.info(qkv);
    const Value dqkv = recorder.Emit(
        std::make_shared<HeadNormBackwardOp>(heads_, options_.gain_offset, recorder.IsTrainable(q)),
        {output_grads[0], qkv, q, k, instance.outputs[1]},
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
