#include "kernels/norms/gated_norm.h"

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

class GatedNormBackwardOp final : public NamedOp<GatedNormBackwardOp> {
 public:
  enum Input { kDy, kX, kZ, kGain, kRstd, kInputs };
  enum Output { kDx, kDz, kDgain, kOutputs };
  explicit GatedNormBackwardOp(int64_t groups) : groups_(groups) {}
  absl::string_view name() const override { return "gated_norm_backward"; }
  bool MayAlias(int output, int input) const override {
    return (output == kDx && input == kX) || (output == kDz && input == kZ);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(GatedNormBackwardArgs{.dy = binder.tensor(instance.inputs[kDy]),
                                               .x = binder.tensor(instance.inputs[kX]),
                                               .z = binder.tensor(instance.inputs[kZ]),
                                               .gain = binder.tensor(instance.inputs[kGain]),
                                               .rstd = binder.tensor(instance.inputs[kRstd]),
                                               .groups = groups_,
                                               .dx = binder.tensor(instance.outputs[kDx]),
                                               .dz = binder.tensor(instance.outputs[kDz]),
                                               .dgain = binder.tensor(instance.outputs[kDgain]),
                                               .write = binder.write(instance.outputs[kDgain])});
  }

 private:
  const int64_t groups_;
};

class GatedNormOp final : public NamedOp<GatedNormOp> {
 public:
  enum Input { kX, kZ, kGain, kInputs };
  enum Output { kY, kRstd, kOutputs };
  GatedNormOp(int64_t groups, double eps) : groups_(groups), eps_(eps) {}
  absl::string_view name() const override { return "gated_norm"; }
  bool is_cheap() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat("groups=", groups_, " eps=", eps_);
  }
  bool MayAlias(int output, int input) const override { return output == kY && input != kGain; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(GatedNormForwardArgs{.x = binder.tensor(instance.inputs[kX]),
                                              .z = binder.tensor(instance.inputs[kZ]),
                                              .gain = binder.tensor(instance.inputs[kGain]),
                                              .groups = groups_,
                                              .eps = eps_,
                                              .y = binder.tensor(instance.outputs[kY]),
                                              .rstd = binder.tensor(instance.outputs[kRstd])});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value x = instance.inputs[kX], z = instance.inputs[kZ], gain = instance.inputs[kGain];
    const ValueInfo info = recorder.info(x);
    const std::vector<Value> grads =
        recorder.Emit(std::make_shared<GatedNormBackwardOp>(groups_),
                      {output_grads[kY], x, z, gain, instance.outputs[kRstd]},
                      {{.shape = info.shape, .dtype = info.dtype, .name = "dx"},
                       {.shape = info.shape, .dtype = info.dtype, .name = "dz"},
                       recorder.GradientOutput(gain)});
    return {grads[GatedNormBackwardOp::kDx], grads[GatedNormBackwardOp::kDz], {}};
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
