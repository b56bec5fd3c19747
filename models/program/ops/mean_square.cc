// The mean-square loss. The gradient of the loss needs no other gradient, so a training step
// computes loss and gradient together, at the start of the backward pass. The instance that forward
// records runs only in validation. A loss is a sum over rows, and each rank adds the terms of the
// rank's own rows.
#include "kernels/loss/mean_square.h"

#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// x is [T, P]. Only the instance of the backward pass has dx.
class MeanSquareOp final : public NamedOp<MeanSquareOp> {
 public:
  enum Input { kX, kTarget, kInputs };
  enum Output { kDx, kOutputs };
  static constexpr size_t kOptionalOutputs = 1;
  explicit MeanSquareOp(bool gradient) : gradient_(gradient) {}
  absl::string_view name() const override {
    return gradient_ ? "mean_square_backward" : "mean_square";
  }
  bool is_loss() const override { return !gradient_; }
  bool has_effect() const override { return true; }
  bool MayAlias(int, int input) const override { return input == kX; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    MeanSquareArgs args{.x = binder.tensor(instance.inputs[kX]),
                        .target = binder.tensor(instance.inputs[kTarget]),
                        .state = binder.step_state()};
    if (gradient_) args.dx = binder.tensor(instance.outputs[kDx]);
    return binder.Kernel(args);
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value>) const override {
    CHECK(!gradient_) << name() << " has no backward";
    const ValueInfo info = recorder.info(instance.inputs[kX]);
    const Value dx =
        recorder.Emit(std::make_shared<MeanSquareOp>(/*gradient=*/true), instance.inputs,
                      {{.shape = info.shape, .dtype = info.dtype, .name = "dx"}})[0];
    return {dx, {}};
  }

 private:
  const bool gradient_;
};

}  // namespace

void MeanSquare(Recorder& recorder, Value x, Value target) {
  const ValueInfo info = recorder.info(x), t = recorder.info(target);
  CHECK(info.shape == t.shape && info.dtype == t.dtype)
      << "mean_square: " << info << " against " << t;
  recorder.set_when(When::kValidation);
  recorder.Emit(std::make_shared<MeanSquareOp>(/*gradient=*/false), {x, target}, {});
  recorder.set_when(When::kAlways);
}

}  // namespace trainyard::ops
