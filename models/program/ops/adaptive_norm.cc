#include "kernels/adaptive_norm.h"

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/samples.h"

namespace trainyard::ops {
namespace {

// Inputs: dy, x, scale, mean, rstd. Outputs: dx, dshift, dscale.
class AdaptiveNormBackwardOp final : public Op {
 public:
  explicit AdaptiveNormBackwardOp(const SampleRows& rows) : rows_(rows) {}
  absl::string_view name() const override { return "adaptive_norm_backward"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(AdaptiveNormBackwardArgs{.dy = binder.tensor(instance.inputs[0]),
                                                  .x = binder.tensor(instance.inputs[1]),
                                                  .scale = binder.tensor(instance.inputs[2]),
                                                  .mean = binder.tensor(instance.inputs[3]),
                                                  .rstd = binder.tensor(instance.inputs[4]),
                                                  .rows = rows_,
                                                  .dx = binder.tensor(instance.outputs[0]),
                                                  .dshift = binder.tensor(instance.outputs[1]),
                                                  .dscale = binder.tensor(instance.outputs[2])});
  }

 private:
  const SampleRows rows_;
};

// Inputs: x, shift, scale. Outputs: y, mean, rstd.
class AdaptiveNormOp final : public Op {
 public:
  AdaptiveNormOp(const SampleRows& rows, double eps) : rows_(rows), eps_(eps) {}
  absl::string_view name() const override { return "adaptive_norm"; }
  bool is_cheap() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat("eps=", eps_, " ", ToString(rows_));
  }
  bool MayAlias(int output, int input) const override { return output == 0 && input == 0; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(AdaptiveNormForwardArgs{.x = binder.tensor(instance.inputs[0]),
                                                 .shift = binder.tensor(instance.inputs[1]),
                                                 .scale = binder.tensor(instance.inputs[2]),
                                                 .rows = rows_,
                                                 .eps = eps_,
                                                 .y = binder.tensor(instance.outputs[0]),
                                                 .mean = binder.tensor(instance.outputs[1]),
                                                 .rstd = binder.tensor(instance.outputs[2])});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value x = instance.inputs[0], scale = instance.inputs[2];
    const ValueInfo rows = recorder.info(x), samples = recorder.info(scale);
    return recorder.Emit(std::make_shared<AdaptiveNormBackwardOp>(rows_),
                         {output_grads[0], x, scale, instance.outputs[1], instance.outputs[2]},
                         {{.shape = rows.shape, .dtype = rows.dtype, .name = "dx"},
                          {.shape = samples.shape, .dtype = samples.dtype, .name = "dshift"},
                          {.shape = samples.shape, .dtype = samples.dtype, .name = "dscale"}});
  }

 private:
  const SampleRows rows_;
  const double eps_;
};

}  // namespace

Value AdaptiveNorm(Recorder& recorder, Value x, Value shift, Value scale, double eps) {
  const ValueInfo info = recorder.info(x);
  const Recorder::Output statistic{.shape = {info.shape.rows()},
                                   .dtype = recorder.precision().statistic,
                                   .name = "statistic",
                                   .differentiable = false};
  return recorder.Emit(
      std::make_shared<AdaptiveNormOp>(SampleRowsOf(recorder), eps), {x, shift, scale},
      {{.shape = info.shape, .dtype = info.dtype, .name = "norm"}, statistic, statistic})[0];
}

}  // namespace trainyard::ops
