#include "kernels/gated_norm.h"

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// Inputs: dy, x, z, gain, rstd. Outputs: dx, dz, gradient of the gain.
class GatedNormBackwardOp final : public Op {
 public:
  explicit GatedNormBackwardOp(int64_t groups) : groups_(groups) {}
  absl::string_view name() const override { return "gated_norm_backward"; }
  bool MayAlias(int output, int input) const override { return output == input - 1 && output < 2; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(GatedNormBackwardArgs{.dy = binder.tensor(instance.inputs[0]),
                                               .x = binder.tensor(instance.inputs[1]),
                                               .z = binder.tensor(instance.inputs[2]),
                                               .gain = binder.tensor(instance.inputs[3]),
                                               .rstd = binder.tensor(instance.inputs[4]),
                                               .groups = groups_,
                                               .dx = binder.tensor(instance.outputs[0]),
                                               .dz = binder.tensor(instance.outputs[1]),
                                               .dgain = binder.tensor(instance.outputs[2]),
                                               .write = binder.write(instance.outputs[2])});
  }

 private:
  const int64_t groups_;
};

// Inputs: x, z, gain. Outputs: y, rstd.
class GatedNormOp final : public Op {
 public:
  GatedNormOp(int64_t groups, double eps) : groups_(groups), eps_(eps) {}
  absl::string_view name() const override { return "gated_norm"; }
  bool is_cheap() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat("groups=", groups_, " eps=", eps_);
  }
  bool MayAlias(int output, int input) const override { return output == 0 && input < 2; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(GatedNormForwardArgs{.x = binder.tensor(instance.inputs[0]),
                                              .z = binder.tensor(instance.inputs[1]),
                                              .gain = binder.tensor(instance.inputs[2]),
                                              .groups = groups_,
                                              .eps = eps_,
                                              .y = binder.tensor(instance.outputs[0]),
                                              .rstd = binder.tensor(instance.outputs[1])});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value x = instance.inputs[0], z = instance.inputs[1], gain = instance.inputs[2];
    const ValueInfo info = recorder.info(x);
    const std::vector<Value> grads =
        recorder.Emit(std::make_shared<GatedNormBackwardOp>(groups_),
                      {output_grads[0], x, z, gain, instance.outputs[1]},
                      {{.shape = info.shape, .dtype = info.dtype, .name = "dx"},
                       {.shape = info.shape, .dtype = info.dtype, .name = "dz"},
                       recorder.GradientOutput(gain)});
    return {grads[0], grads[1], {}};
  }

 private:
  const int64_t groups_;
  const double eps_;
};

}  // namespace

Value GatedNorm(Recorder& recorder, const GatedNormInputs& inputs, int64_t groups, double eps) {
  const ValueInfo info = recorder.info(inputs.x);
  return recorder.Emit(std::make_shared<GatedNormOp>(groups, eps),
                       {inputs.x, inputs.z, inputs.gain},
                       {{.shape = info.shape, .dtype = info.dtype, .name = "norm"},
                        Recorder::Output::Memory("rstd", {info.shape.rows(), groups},
                                                 recorder.precision().statistic)})[0];
}

}  // namespace trainyard::ops
