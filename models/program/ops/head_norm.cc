#include "kernels/norms/head_norm.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// If one gain is frozen, its gradient is memory, which is written in the same way. With cos and
// sin, the heads were rotated afterwards.
class HeadNormBackwardOp final : public NamedOp<HeadNormBackwardOp> {
 public:
  enum Input { kDy, kQkv, kQueryGain, kKeyGain, kRstd, kCos, kSin, kInputs };
  enum Output { kDqkv, kDqueryGain, kDkeyGain, kOutputs };
  static constexpr size_t kOptionalInputs = 2;
  HeadNormBackwardOp(const Heads& heads, double gain_offset, bool query_trainable, bool rotated)
      : heads_(heads),
        gain_offset_(gain_offset),
        query_trainable_(query_trainable),
        rotated_(rotated) {}
  absl::string_view name() const override {
    return rotated_ ? "head_norm_rope_backward" : "head_norm_backward";
  }
  bool MayAlias(int output, int input) const override { return output == kDqkv && input == kDy; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    HeadNormBackwardArgs args{
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
        .gain_offset = gain_offset_};
    if (rotated_) {
      args.cos = binder.tensor(instance.inputs[kCos]);
      args.sin = binder.tensor(instance.inputs[kSin]);
      args.sequence = args.cos.shape.rows();
    }
    return binder.Kernel(args);
  }

 private:
  const Heads heads_;
  const double gain_offset_;
  const bool query_trainable_, rotated_;
};

// With cos and sin, the heads are rotated, too. Then the output is read by the backward pass of
// attention, which needs all of it again, so that nothing is gained by computing it again.
class HeadNormOp final : public NamedOp<HeadNormOp> {
 public:
  enum Input { kQkv, kQueryGain, kKeyGain, kCos, kSin, kInputs };
  enum Output { kNormalised, kRstd, kOutputs };
  static constexpr size_t kOptionalInputs = 2;
  HeadNormOp(const Heads& heads, const NormOptions& options, bool rotated)
      : heads_(heads), options_(options), rotated_(rotated) {}
  // The same, and then the rotation.
  std::shared_ptr<HeadNormOp> Rotated() const {
    return std::make_shared<HeadNormOp>(heads_, options_, /*rotated=*/true);
  }
  absl::string_view name() const override { return rotated_ ? "head_norm_rope" : "head_norm"; }
  bool is_cheap() const override { return !rotated_; }
  std::string attributes() const override {
    return absl::StrCat(ToString(heads_), " ", ToString(options_));
  }
  bool MayAlias(int output, int input) const override {
    return output == kNormalised && input == kQkv;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    HeadNormForwardArgs args{.x = binder.tensor(instance.inputs[kQkv]),
                             .q_gain = binder.tensor(instance.inputs[kQueryGain]),
                             .k_gain = binder.tensor(instance.inputs[kKeyGain]),
                             .heads = heads_.heads,
                             .kv_heads = heads_.kv_heads,
                             .eps = options_.eps,
                             .y = binder.tensor(instance.outputs[kNormalised]),
                             .rstd = binder.tensor(instance.outputs[kRstd]),
                             .gain_offset = options_.gain_offset};
    if (rotated_) {
      args.cos = binder.tensor(instance.inputs[kCos]);
      args.sin = binder.tensor(instance.inputs[kSin]);
      args.sequence = args.cos.shape.rows();
    }
    return binder.Kernel(args);
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value qkv = instance.inputs[kQkv], q = instance.inputs[kQueryGain],
                k = instance.inputs[kKeyGain];
    const ValueInfo info = recorder.info(qkv);
    std::vector<Value> inputs = {output_grads[kNormalised], qkv, q, k, instance.outputs[kRstd]};
    inputs.insert(inputs.end(), instance.inputs.begin() + kCos, instance.inputs.end());
    std::vector<Value> grads(instance.inputs.size());
    grads[kQkv] =
        recorder.Emit(std::make_shared<HeadNormBackwardOp>(heads_, options_.gain_offset,
                                                           recorder.IsTrainable(q), rotated_),
                      inputs,
                      {{.shape = info.shape, .dtype = info.dtype, .name = "dqkv"},
                       recorder.GradientOutput(q),
                       recorder.GradientOutput(k)})[0];
    return grads;
  }

 private:
  const Heads heads_;
  const NormOptions options_;
  const bool rotated_;
};

}  // namespace

Value HeadNorm(Recorder& recorder, Value qkv, const HeadGains& gains, const Heads& heads) {
  const ValueInfo info = recorder.info(qkv);
  for (Value gain : {gains.query, gains.key}) {
    CHECK(recorder.info(gain).shape == Shape({heads.head_dim}))
        << "head_norm: gain " << recorder.info(gain) << " for " << info;
  }
  return recorder.Emit(std::make_shared<HeadNormOp>(heads, gains.options, /*rotated=*/false),
                       {qkv, gains.query, gains.key},
                       {{.shape = info.shape, .dtype = info.dtype, .name = "norm"},
                        {.shape = {info.shape[0], heads.heads + heads.kv_heads},
                         .dtype = recorder.precision().statistic,
                         .name = "rstd",
                         .differentiable = false}})[0];
}

Instance HeadNormRope(const Instance& norm, const Instance& rope) {
  Instance both = norm;
  both.op = OpAs<HeadNormOp>(norm).Rotated();
  both.inputs.insert(both.inputs.end(), rope.inputs.begin() + 1, rope.inputs.end());
  both.outputs[HeadNormOp::kNormalised] = rope.outputs.front();
  return both;
}

}  // namespace trainyard::ops
