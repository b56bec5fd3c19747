#include "kernels/cross_entropy.h"

#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// Inputs: logits, targets, lse. Output: dlogits, in the compute dtype.
class CrossEntropyBackwardOp final : public Op {
 public:
  absl::string_view name() const override { return "cross_entropy_backward"; }
  bool MayAlias(int output, int input) const override { return output == 0 && input == 0; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(CrossEntropyBackwardArgs{.logits = binder.tensor(instance.inputs[0]),
                                                  .targets = binder.tensor(instance.inputs[1]),
                                                  .lse = binder.tensor(instance.inputs[2]),
                                                  .state = binder.step_state(),
                                                  .dlogits = binder.tensor(instance.outputs[0])});
  }
};

// Inputs: logits, targets. Output: lse.
class CrossEntropyOp final : public Op {
 public:
  absl::string_view name() const override { return "cross_entropy"; }
  bool is_loss() const override { return true; }
  bool has_effect() const override { return true; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(CrossEntropyForwardArgs{.logits = binder.tensor(instance.inputs[0]),
                                                 .targets = binder.tensor(instance.inputs[1]),
                                                 .lse = binder.tensor(instance.outputs[0]),
                                                 .state = binder.step_state()});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value>) const override {
    const Value logits = instance.inputs[0], targets = instance.inputs[1];
    const Shape shape = recorder.info(logits).shape;
    const Value dlogits = recorder.Emit(
        std::make_shared<CrossEntropyBackwardOp>(), {logits, targets, instance.outputs[0]},
        {{.shape = shape, .dtype = recorder.precision().compute, .name = "dlogits"}})[0];
    return {dlogits, {}};
  }
};

}  // namespace

void CrossEntropy(Recorder& recorder, Value logits, Value targets) {
  const ValueInfo info = recorder.info(logits), t = recorder.info(targets);
  CHECK(info.shape.rank() == 2 && t.shape.elements() == info.shape[0] && t.dtype == DType::kI32)
      << "cross_entropy: " << info << " against " << t;
  recorder.Emit(
      std::make_shared<CrossEntropyOp>(), {logits, targets},
      {{.shape = {info.shape[0]}, .dtype = info.dtype, .name = "lse", .differentiable = false}});
}

}  // namespace trainyard::ops
