#include "kernels/norms/adaptive_norm.h"

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/samples.h"

namespace trainyard::ops {
namespace {

class AdaptiveNormBackwardOp final : public NamedOp<AdaptiveNormBackwardOp> {
 public:
  enum Input { kDy, kX, kScale, kMean, kRstd, kInputs };
  enum Output { kDx, kDshift, kDscale, kOutputs };
  explicit AdaptiveNormBackwardOp(const SampleRows& rows) : rows_(rows) {}
  absl::string_view name() const override { return "adaptive_norm_backward"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(
        AdaptiveNormBackwardArgs{.dy = binder.tensor(instance.inputs[kDy]),
                                 .x = binder.tensor(instance.inputs[kX]),
                                 .scale = binder.tensor(instance.inputs[kScale]),
                                 .mean = binder.tensor(instance.inputs[kMean]),
                                 .rstd = binder.tensor(instance.inputs[kRstd]),
                                 .rows = rows_,
                                 .dx = binder.tensor(instance.outputs[kDx]),
                                 .dshift = binder.tensor(instance.outputs[kDshift]),
                                 .dscale = binder.tensor(instance.outputs[kDscale])});
  }

 private:
  const SampleRows rows_;
};

class AdaptiveNormOp final : public NamedOp<AdaptiveNormOp> {
 public:
  enum Input { kX, kShift, kScale, kInputs };
  enum Output { kY, kMean, kRstd, kOutputs };
  AdaptiveNormOp(const SampleRows& rows, double eps) : rows_(rows), eps_(eps) {}
  absl::string_view name() const override { return "adaptive_norm"; }
  bool is_cheap() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat("eps=", eps_, " ", ToString(rows_));
  }
  bool MayAlias(int output, int input) const override { return output == kY && input == kX; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(AdaptiveNormForwardArgs{.x = binder.tensor(instance.inputs[kX]),
                                                 .shift = binder.tensor(instance.inputs[kShift]),
                                                 .scale = binder.tensor(instance.inputs[kScale]),
                                                 .rows = rows_,
                                                 .eps = eps_,
                                                 .y = binder.tensor(instance.outputs[kY]),
                                                 .mean = binder.tensor(instance.outputs[kMean]),
                                                 .rstd = binder.tensor(instance.outputs[kRstd])});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value x = instance.inputs[kX], scale = instance.inputs[kScale];
    const ValueInfo rows = recorder.info(x), samples = recorder.info(scale);
    return recorder.Emit(
        std::make_shared<AdaptiveNormBackwardOp>(rows_),
        {output_grads[kY], x, scale, instance.outputs[kMean], instance.outputs[kRstd]},
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
