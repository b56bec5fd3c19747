#include "kernels/layer_norm.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// Inputs: dy, x (or the sum that was normalised), gain, mean, rstd, and dsum if any. Outputs: dx,
// gradients of gain and bias. If one of these is frozen, its output is memory, which is written in
// the same way.
class LayerNormBackwardOp final : public Op {
 public:
  struct Trainable {
    bool gain;
    bool bias;
  };
  LayerNormBackwardOp(const Trainable& trainable, double gain_offset)
      : trainable_(trainable), gain_offset_(gain_offset) {}
  absl::string_view name() const override { return "layer_norm_backward"; }
  bool MayAlias(int output, int input) const override { return output == 0 && input == 5; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Write write = binder.write(instance.outputs[trainable_.gain ? 1 : 2]);
    CHECK(!trainable_.gain || !trainable_.bias || write == binder.write(instance.outputs[2]))
        << "layer_norm: gain and bias are used unequally often";
    LayerNormBackwardArgs args{.dy = binder.tensor(instance.inputs[0]),
                               .x = binder.tensor(instance.inputs[1]),
                               .gain = binder.tensor(instance.inputs[2]),
                               .mean = binder.tensor(instance.inputs[3]),
                               .rstd = binder.tensor(instance.inputs[4]),
                               .dx = binder.tensor(instance.outputs[0]),
                               .dgain = binder.tensor(instance.outputs[1]),
                               .dbias = binder.tensor(instance.outputs[2]),
                               .write = write};
    args.gain_offset = gain_offset_;
    if (instance.inputs.size() > 5) args.dsum = binder.tensor(instance.inputs[5]);
    return binder.Kernel(args);
  }

 private:
  const Trainable trainable_;
  const double gain_offset_;
};

// Inputs: x, gain, bias, and the addend if of a sum. Outputs: y, mean, rstd, and the sum if any.
class LayerNormOp final : public Op {
 public:
  LayerNormOp(const NormOptions& options, bool of_sum) : options_(options), of_sum_(of_sum) {}
  const NormOptions& options() const { return options_; }
  absl::string_view name() const override { return of_sum_ ? "add_layer_norm" : "layer_norm"; }
  bool is_cheap() const override { return true; }
  std::string attributes() const override { return ToString(options_); }
  bool MayAlias(int output, int input) const override {
    return (output == 0 || output == 3) && (input == 0 || input == 3);
  }

  Instance CheapPart(const Instance& instance) const override {
    if (!of_sum_) return instance;
    return ReadingSum(instance, std::make_shared<LayerNormOp>(options_, /*of_sum=*/false));
  }

  Call Bind(const Binder& binder, const Instance& instance) const override {
    LayerNormForwardArgs args{.x = binder.tensor(instance.inputs[0]),
                              .gain = binder.tensor(instance.inputs[1]),
                              .bias = binder.tensor(instance.inputs[2]),
                              .eps = options_.eps,
                              .y = binder.tensor(instance.outputs[0]),
                              .mean = binder.tensor(instance.outputs[1]),
                              .rstd = binder.tensor(instance.outputs[2])};
    args.gain_offset = options_.gain_offset;
    if (of_sum_) {
      args.addend = binder.tensor(instance.inputs[3]);
      args.sum = binder.tensor(instance.outputs[3]);
    }
    return binder.Kernel(args);
  }

  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value x = of_sum_ ? instance.outputs[3] : instance.inputs[0];
    const Value gain = instance.inputs[1], bias = instance.inputs[2];
    const ValueInfo info = recorder.info(x);
    std::vector<Value> inputs = {output_grads[0], x, gain, instance.outputs[1],
                                 instance.outputs[2]};
    if (of_sum_ && output_grads[3].valid()) inputs.push_back(output_grads[3]);
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
