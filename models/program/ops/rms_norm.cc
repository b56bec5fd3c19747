#include "kernels/norms/rms_norm.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// x is the sum if a sum was normalised.
class RmsNormBackwardOp final : public NamedOp<RmsNormBackwardOp> {
 public:
  enum Input { kDy, kX, kGain, kRstd, kDsum, kInputs };
  enum Output { kDx, kDgain, kOutputs };
  static constexpr size_t kOptionalInputs = 1;
  explicit RmsNormBackwardOp(double gain_offset) : gain_offset_(gain_offset) {}
  absl::string_view name() const override { return "rms_norm_backward"; }
  bool MayAlias(int output, int input) const override { return output == kDx && input == kDsum; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    RmsNormBackwardArgs args{.dy = binder.tensor(instance.inputs[kDy]),
                             .x = binder.tensor(instance.inputs[kX]),
                             .gain = binder.tensor(instance.inputs[kGain]),
                             .rstd = binder.tensor(instance.inputs[kRstd]),
                             .dx = binder.tensor(instance.outputs[kDx]),
                             .dgain = binder.tensor(instance.outputs[kDgain]),
                             .write = binder.write(instance.outputs[kDgain])};
    args.gain_offset = gain_offset_;
    if (instance.inputs.size() > kDsum) args.dsum = binder.tensor(instance.inputs[kDsum]);
    return binder.Kernel(args);
  }

 private:
  const double gain_offset_;
};

// Of a sum if there is an addend.
class RmsNormOp final : public NamedOp<RmsNormOp> {
 public:
  enum Input { kX, kGain, kAddend, kInputs };
  enum Output { kY, kRstd, kSum, kOutputs };
  static constexpr size_t kOptionalInputs = 1;
  static constexpr size_t kOptionalOutputs = 1;
  RmsNormOp(const NormOptions& options, bool of_sum) : options_(options), of_sum_(of_sum) {}
  const NormOptions& options() const { return options_; }
  absl::string_view name() const override { return of_sum_ ? "add_rms_norm" : "rms_norm"; }
  bool is_cheap() const override { return true; }
  std::string attributes() const override { return ToString(options_); }
  bool MayAlias(int output, int input) const override { return output != kRstd && input != kGain; }

  Instance CheapPart(const Instance& instance) const override {
    if (!of_sum_) return instance;
    return ReadingSum(instance, std::make_shared<RmsNormOp>(options_, /*of_sum=*/false));
  }

  Call Bind(const Binder& binder, const Instance& instance) const override {
    RmsNormForwardArgs args{.x = binder.tensor(instance.inputs[kX]),
                            .gain = binder.tensor(instance.inputs[kGain]),
                            .eps = options_.eps,
                            .y = binder.tensor(instance.outputs[kY]),
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
    const Value x = of_sum_ ? instance.outputs[kSum] : instance.inputs[kX],
                gain = instance.inputs[kGain];
    const ValueInfo info = recorder.info(x);
    std::vector<Value> inputs = {output_grads[kY], x, gain, instance.outputs[kRstd]};
    if (of_sum_ && output_grads[kSum].valid()) inputs.push_back(output_grads[kSum]);
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
