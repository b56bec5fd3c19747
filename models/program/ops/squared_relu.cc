#include "kernels/squared_relu.h"

#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// Inputs: dy, x. Output: dx.
class SquaredReluBackwardOp final : public Op {
 public:
  absl::string_view name() const override { return "squared_relu_backward"; }
  bool MayAlias(int, int) const override { return true; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(SquaredReluBackwardArgs{.dy = binder.tensor(instance.inputs[0]),
                                                 .x = binder.tensor(instance.inputs[1]),
                                                 .dx = binder.tensor(instance.outputs[0])});
  }
};

class SquaredReluOp final : public Op {
 public:
  absl::string_view name() const override { return "squared_relu"; }
  bool is_cheap() const override { return true; }
  bool MayAlias(int, int) const override { return true; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(SquaredReluForwardArgs{.x = binder.tensor(instance.inputs[0]),
                                                .y = binder.tensor(instance.outputs[0])});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const ValueInfo info = recorder.info(instance.inputs[0]);
    return recorder.Emit(std::make_shared<SquaredReluBackwardOp>(),
                         {output_grads[0], instance.inputs[0]},
                         {{.shape = info.shape, .dtype = info.dtype, .name = "dx"}});
  }
};

}  // namespace

Value SquaredRelu(Recorder& recorder, Value x) {
  const ValueInfo info = recorder.info(x);
  return recorder.Emit(std::make_shared<SquaredReluOp>(), {x},
                       {{.shape = info.shape, .dtype = info.dtype, .name = "squared_relu"}})[0];
}

}  // namespace trainyard::ops
