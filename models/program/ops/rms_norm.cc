#include "kernels/rms_norm.h"

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// Inputs: dy, x, gain, rstd. Outputs: dx, gradient of the gain.
class RmsNormBackwardOp final : public Op {
 public:
  absl::string_view name() const override { return "rms_norm_backward"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(RmsNormBackwardArgs{.dy = binder.tensor(instance.inputs[0]),
                                             .x = binder.tensor(instance.inputs[1]),
                                             .gain = binder.tensor(instance.inputs[2]),
                                             .rstd = binder.tensor(instance.inputs[3]),
                                             .dx = binder.tensor(instance.outputs[0]),
                                             .dgain = binder.tensor(instance.outputs[1]),
                                             .write = binder.write(instance.outputs[1])});
  }
};

// Inputs: x, gain. Outputs: y, rstd.
class RmsNormOp final : public Op {
 public:
  explicit RmsNormOp(double eps) : eps_(eps) {}
  absl::string_view name() const override { return "rms_norm"; }
  bool is_cheap() const override { return true; }
  std::string attributes() const override { return absl::StrCat("eps=", eps_); }
  bool MayAlias(int output, int input) const override { return output == 0 && input == 0; }

  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(RmsNormForwardArgs{.x = binder.tensor(instance.inputs[0]),
                                            .gain = binder.tensor(instance.inputs[1]),
                                            .eps = eps_,
                                            .y = binder.tensor(instance.outputs[0]),
                                            .rstd = binder.tensor(instance.outputs[1])});
  }

  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value x = instance.inputs[0], gain = instance.inputs[1];
    const ValueInfo info = recorder.info(x);
    const Value dx = recorder.Emit(std::make_shared<RmsNormBackwardOp>(),
                                   {output_grads[0], x, gain, instance.outputs[1]},
                                   {{.shape = info.shape, .dtype = info.dtype, .name = "dx"},
                                    Recorder::Output::Into(recorder.Gradient(gain))})[0];
    return {dx, {}};
  }

 private:
  double eps_;
};

}  // namespace

Value RmsNorm(Recorder& recorder, Value x, Value gain, double eps) {
  const ValueInfo info = recorder.info(x), g = recorder.info(gain);
  CHECK(g.shape == Shape({info.shape.back()})) << "rms_norm: gain " << g << " for " << info;
  return recorder.Emit(std::make_shared<RmsNormOp>(eps), {x, gain},
                       {{.shape = info.shape, .dtype = info.dtype, .name = "norm"},
                        {.shape = {info.shape.rows()},
                         .dtype = recorder.precision().accumulate,
                         .name = "rstd",
                         .differentiable = false}})[0];
}

}  // namespace trainyard::ops
