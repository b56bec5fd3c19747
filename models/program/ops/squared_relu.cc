#include "kernels/elementwise/squared_relu.h"

#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

class SquaredReluBackwardOp final : public NamedOp<SquaredReluBackwardOp> {
 public:
  enum Input { kDy, kX, kInputs };
  enum Output { kDx, kOutputs };
  absl::string_view name() const override { return "squared_relu_backward"; }
  bool MayAlias(int, int) const override { return true; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(SquaredReluBackwardArgs{.dy = binder.tensor(instance.inputs[kDy]),
                                                 .x = binder.tensor(instance.inputs[kX]),
                                                 .dx = binder.tensor(instance.outputs[kDx])});
  }
};

class SquaredReluOp final : public NamedOp<SquaredReluOp> {
 public:
  enum Input { kX, kInputs };
  enum Output { kY, kOutputs };
  absl::string_view name() const override { return "squared_relu"; }
  bool is_cheap() const override { return true; }
  bool MayAlias(int, int) const override { return true; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(SquaredReluForwardArgs{.x = binder.tensor(instance.inputs[kX]),
                                                .y = binder.tensor(instance.outputs[kY])});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const ValueInfo info = recorder.info(instance.inputs[kX]);
    return recorder.Emit(std::make_shared<SquaredReluBackwardOp>(),
                         {output_grads[kY], instance.inputs[kX]},
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
