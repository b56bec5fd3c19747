#include "kernels/rms_norm.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// Inputs: dy, x (or the sum that was normalised), gain, rstd, and dsum if any. Outputs: dx,
// gradient of the gain.
class RmsNormBackwardOp final : public Op {
 public:
  explicit RmsNormBackwardOp(double gain_offset) : gain_offset_(gain_offset) {}
  absl::string_view name() const override { return "rms_norm_backward"; }
  bool MayAlias(int output, int input) const override { return output == 0 && input == 4; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    RmsNormBackwardArgs args{.dy = binder.tensor(instance.inputs[0]),
                             .x = binder.tensor(instance.inputs[1]),
                             .gain = binder.tensor(instance.inputs[2]),
                             .rstd = binder.tensor(instance.inputs[3]),
                             .dx = binder.tensor(instance.outputs[0]),
                             .dgain = binder.tensor(instance.outputs[1]),
                             .write = binder.write(instance.outputs[1])};
    args.gain_offset = gain_offset_;
    if (instance.inputs.size() > 4) args.dsum = binder.tensor(instance.inputs[4]);
    return binder.Kernel(args);
  }

 private:
  const double gain_offset_;
};

// Inputs: x, gain, and the addend if of a sum. Outputs: y, rstd, and the sum if any.
class RmsNormOp final : public Op {
 public:
  RmsNormOp(const NormOptions& options, bool of_sum) : options_(options), of_sum_(of_sum) {}
  const NormOptions& options() const { return options_; }
  absl::string_view name() const override { return of_sum_ ? "add_rms_norm" : "rms_norm"; }
  bool is_cheap() const override { return true; }
  std::string attributes() const override { return ToString(options_); }
  bool MayAlias(int output, int input) const override { return output != 1 && input != 1; }

  Instance CheapPart(const Instance& instance) const override {
    if (!of_sum_) return instance;
    return ReadingSum(instance, std::make_shared<RmsNormOp>(options_, /*of_sum=*/false));
  }

  Call Bind(const Binder& binder, const Instance& instance) const override {
    RmsNormForwardArgs args{.x = binder.tensor(instance.inputs[0]),
                            .gain = binder.tensor(instance.inputs[1]),
                            .eps = options_.eps,
                            .y = binder.tensor(instance.outputs[0]),
                            .rstd = binder.tensor(instance.outputs[1])};
    args.gain_offset = options_.gain_offset;
    if (of_sum_) {
      args.addend = binder.tensor(instance.inputs[2]);
      args.sum = binder.tensor(instance.outputs[2]);
    }
    return binder.Kernel(args);
  }

  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value x = of_sum_ ? instance.outputs[2] : instance.inputs[0], gain = instance.inputs[1];
    const ValueInfo info = recorder.info(x);
    std::vector<Value> inputs = {output_grads[0], x, gain, instance.outputs[1]};
    if (of_sum_ && output_grads[2].valid()) inputs.push_back(output_grads[2]);
    const Value dx =
        recorder.Emit(std::make_shared<RmsNormBackwardOp>(options_.gain_offset), std::move(inputs),
                      {{.shape = info.shape, .dtype = info.dtype, .name = "dx"},
                       recorder.GradientOutput(gain)})[0];
    return of_sum_ ? std::vector<Value>{dx, {}, dx} : std::vector<Value>{dx, {}};
  }

 private:
  NormOptions options_;
  bool of_sum_;
};

}  // namespace

std::string ToString(const NormOptions& options) {
  std::string text = absl::StrCat("eps=", options.eps);
  if (options.gain_offset != 0) absl::StrAppend(&text, " gain_offset=", options.gain_offset);
  return text;
}

Value RmsNorm(Recorder& recorder, Value x, Value gain, const NormOptions& options) {
  const ValueInfo info = recorder.info(x), g = recorder.info(gain);
  CHECK(g.shape == Shape({info.shape.back()})) << "rms_norm: gain " << g << " for " << info;
  return recorder.Emit(std::make_shared<RmsNormOp>(options, /*of_sum=*/false), {x, gain},
                       {{.shape = info.shape, .dtype = info.dtype, .name = "norm"},
                        {.shape = {info.shape.rows()},
                         .dtype = recorder.precision().statistic,
                         .name = "rstd",
                         .differentiable = false}})[0];
}

Instance AddRmsNorm(const Instance& add, const Instance& norm) {
  const NormOptions options = OpAs<RmsNormOp>(norm).options();
  return TakingSum(add, norm, std::make_shared<RmsNormOp>(options, /*of_sum=*/true));
}

}  // namespace trainyard::ops
