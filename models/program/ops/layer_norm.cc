#include "kernels/layer_norm.h"

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// Inputs: dy, x, gain, mean, rstd. Outputs: dx, gradients of gain and bias.
class LayerNormBackwardOp final : public Op {
 public:
  absl::string_view name() const override { return "layer_norm_backward"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    CHECK(binder.write(instance.outputs[1]) == binder.write(instance.outputs[2]))
        << "layer_norm: gain and bias are used unequally often";
    return binder.Kernel(LayerNormBackwardArgs{.dy = binder.tensor(instance.inputs[0]),
                                               .x = binder.tensor(instance.inputs[1]),
                                               .gain = binder.tensor(instance.inputs[2]),
                                               .mean = binder.tensor(instance.inputs[3]),
                                               .rstd = binder.tensor(instance.inputs[4]),
                                               .dx = binder.tensor(instance.outputs[0]),
                                               .dgain = binder.tensor(instance.outputs[1]),
                                               .dbias = binder.tensor(instance.outputs[2]),
                                               .write = binder.write(instance.outputs[1])});
  }
};

// Inputs: x, gain, bias. Outputs: y, mean, rstd.
class LayerNormOp final : public Op {
 public:
  explicit LayerNormOp(double eps) : eps_(eps) {}
  absl::string_view name() const override { return "layer_norm"; }
  bool is_cheap() const override { return true; }
  std::string attributes() const override { return absl::StrCat("eps=", eps_); }
  bool MayAlias(int output, int input) const override { return output == 0 && input == 0; }

  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(LayerNormForwardArgs{.x = binder.tensor(instance.inputs[0]),
                                              .gain = binder.tensor(instance.inputs[1]),
                                              .bias = binder.tensor(instance.inputs[2]),
                                              .eps = eps_,
                                              .y = binder.tensor(instance.outputs[0]),
                                              .mean = binder.tensor(instance.outputs[1]),
                                              .rstd = binder.tensor(instance.outputs[2])});
  }

  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value x = instance.inputs[0], gain = instance.inputs[1], bias = instance.inputs[2];
    const ValueInfo info = recorder.info(x);
    const Value dx =
        recorder.Emit(std::make_shared<LayerNormBackwardOp>(),
                      {output_grads[0], x, gain, instance.outputs[1], instance.outputs[2]},
                      {{.shape = info.shape, .dtype = info.dtype, .name = "dx"},
                       Recorder::Output::Into(recorder.Gradient(gain)),
                       Recorder::Output::Into(recorder.Gradient(bias))})[0];
    return {dx, {}, {}};
  }

 private:
  double eps_;
};

}  // namespace

Value LayerNorm(Recorder& recorder, Value x, Value gain, Value bias, double eps) {
  const ValueInfo info = recorder.info(x), g = recorder.info(gain), b = recorder.info(bias);
  CHECK(g.shape == Shape({info.shape.back()})) << "layer_norm: gain " << g << " for " << info;
  CHECK(b.shape == g.shape) << "layer_norm: bias " << b << " for " << info;
  const Recorder::Output statistic{.shape = {info.shape.rows()},
                                   .dtype = recorder.precision().accumulate,
                                   .name = "statistic",
                                   .differentiable = false};
  return recorder.Emit(
      std::make_shared<LayerNormOp>(eps), {x, gain, bias},
      {{.shape = info.shape, .dtype = info.dtype, .name = "norm"}, statistic, statistic})[0];
}

}  // namespace trainyard::ops
