#include "kernels/norms/layer_norm.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// x is the sum if a sum was normalised. If gain or bias is frozen, its gradient is memory, which is
// written in the same way.
class LayerNormBackwardOp final : public NamedOp<LayerNormBackwardOp> {
 public:
  enum Input { kDy, kX, kGain, kMean, kRstd, kDsum, kInputs };
  enum Output { kDx, kDgain, kDbias, kOutputs };
  static constexpr size_t kOptionalInputs = 1;
  struct Trainable {
    bool gain;
    bool bias;
  };
  LayerNormBackwardOp(const Trainable& trainable, double gain_offset)
      : trainable_(trainable), gain_offset_(gain_offset) {}
  absl::string_view name() const override { return "layer_norm_backward"; }
  bool MayAlias(int output, int input) const override { return output == kDx && input == kDsum; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Write write = binder.write(instance.outputs[trainable_.gain ? kDgain : kDbias]);
    CHECK(!trainable_.gain || !trainable_.bias || write == binder.write(instance.outputs[kDbias]))
        << "layer_norm: gain and bias are used unequally often";
    LayerNormBackwardArgs args{.dy = binder.tensor(instance.inputs[kDy]),
                               .x = binder.tensor(instance.inputs[kX]),
                               .gain = binder.tensor(instance.inputs[kGain]),
                               .mean = binder.tensor(instance.inputs[kMean]),
                               .rstd = binder.tensor(instance.inputs[kRstd]),
                               .dx = binder.tensor(instance.outputs[kDx]),
                               .dgain = binder.tensor(instance.outputs[kDgain]),
                               .dbias = binder.tensor(instance.outputs[kDbias]),
                               .write = write};
    args.gain_offset = gain_offset_;
    if (instance.inputs.size() > kDsum) args.dsum = binder.tensor(instance.inputs[kDsum]);
    return binder.Kernel(args);
  }

 private:
  const Trainable trainable_;
  const double gain_offset_;
};

// Of a sum if there is an addend.
class LayerNormOp final : public NamedOp<LayerNormOp> {
 public:
  enum Input { kX, kGain, kBias, kAddend, kInputs };
  enum Output { kY, kMean, kRstd, kSum, kOutputs };
  static constexpr size_t kOptionalInputs = 1;
  static constexpr size_t kOptionalOutputs = 1;
  LayerNormOp(const NormOptions& options, bool of_sum) : options_(options), of_sum_(of_sum) {}
  const NormOptions& options() const { return options_; }
  absl::string_view name() const override { return of_sum_ ? "add_layer_norm" : "layer_norm"; }
  bool is_cheap() const override { return true; }
  std::string attributes() const override { return ToString(options_); }
  bool MayAlias(int output, int input) const override {
    return (output == kY || output == kSum) && (input == kX || input == kAddend);
  }

  Instance CheapPart(const Instance& instance) const override {
    if (!of_sum_) return instance;
    return ReadingSum(instance, std::make_shared<LayerNormOp>(options_, /*of_sum=*/false));
  }

  Call Bind(const Binder& binder, const Instance& instance) const override {
    LayerNormForwardArgs args{.x = binder.tensor(instance.inputs[kX]),
                              .gain = binder.tensor(instance.inputs[kGain]),
                              .bias = binder.tensor(instance.inputs[kBias]),
                              .eps = options_.eps,
                              .y = binder.tensor(instance.outputs[kY]),
                              .mean = binder.tensor(instance.outputs[kMean]),
                              .rstd = binder.tensor(instance.outputs[kRstd])};
    args.gain_offset = options_.gain_offset;
    if (of_sum_) {
      args.addend = binder.tensor(instance.inputs[kAddend]);
      args.sum = binder.tensor(instance.outputs[kSum]);
    }
    return binder.Kernel(args);
  }

  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value x = of_sum_ ? instance.outputs[kSum] : instance.inputs[kX];
    const Value gain = instance.inputs[kGain], bias = instance.inputs[kBias];
    const ValueInfo info = recorder.info(x);
    std::vector<Value> inputs = {output_grads[kY], x, gain, instance.outputs[kMean],
                                 instance.outputs[kRstd]};
    if (of_sum_ && output_grads[kSum].valid()) inputs.push_back(output_grads[kSum]);
    const LayerNormBackwardOp::Trainable trainable{.gain = recorder.IsTrainable(gain),
                                                   .bias = recorder.IsTrainable(bias)};
    const Value dx = recorder.Emit(
        std::make_shared<LayerNormBackwardOp>(trainable, options_.gain_offset), std::move(inputs),
        {{.shape = info.shape, .dtype = info.dtype, .name = "dx"},
         recorder.GradientOutput(gain),
         recorder.GradientOutput(bias)})[0];
    return of_sum_ ? std::vector<Value>{dx, {}, {}, dx} : std::vector<Value>{dx, {}, {}};
  }

 private:
  NormOptions options_;
  bool of_sum_;
};

}  // namespace

Value LayerNorm(Recorder& recorder, Value x, Value gain, Value bias, const NormOptions& options) {
  const ValueInfo info = recorder.info(x), g = recorder.info(gain), b = recorder.info(bias);
  CHECK(g.shape == Shape({info.shape.back()})) << "layer_norm: gain " << g << " for " << info;
  CHECK(b.shape == g.shape) << "layer_norm: bias " << b << " for " << info;
  const Recorder::Output statistic{.shape = {info.shape.rows()},
                                   .dtype = recorder.precision().statistic,
                                   .name = "statistic",
                                   .differentiable = false};
  return recorder.Emit(
      std::make_shared<LayerNormOp>(options, /*of_sum=*/false), {x, gain, bias},
      {{.shape = info.shape, .dtype = info.dtype, .name = "norm"}, statistic, statistic})[0];
}

Instance AddLayerNorm(const Instance& add, const Instance& norm) {
  const NormOptions options = OpAs<LayerNormOp>(norm).options();
  return TakingSum(add, norm, std::make_shared<LayerNormOp>(options, /*of_sum=*/true));
}

}  // namespace trainyard::ops
