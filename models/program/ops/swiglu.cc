#include "kernels/elementwise/swiglu.h"

#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

class SwiGluBackwardOp final : public NamedOp<SwiGluBackwardOp> {
 public:
  enum Input { kDy, kX, kInputs };
  enum Output { kDx, kOutputs };
  explicit SwiGluBackwardOp(GateActivation gate) : gate_(gate) {}
  absl::string_view name() const override {
    return gate_ == GateActivation::kSilu ? "swiglu_backward" : "geglu_backward";
  }
  bool MayAlias(int output, int input) const override { return output == kDx && input == kX; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(SwiGluBackwardArgs{.dy = binder.tensor(instance.inputs[kDy]),
                                            .x = binder.tensor(instance.inputs[kX]),
                                            .dx = binder.tensor(instance.outputs[kDx]),
                                            .gate = gate_});
  }

 private:
  const GateActivation gate_;
};

class SwiGluOp final : public NamedOp<SwiGluOp> {
 public:
  enum Input { kX, kInputs };
  enum Output { kY, kOutputs };
  explicit SwiGluOp(GateActivation gate) : gate_(gate) {}
  absl::string_view name() const override {
    return gate_ == GateActivation::kSilu ? "swiglu" : "geglu";
  }
  bool is_cheap() const override { return true; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(SwiGluForwardArgs{.x = binder.tensor(instance.inputs[kX]),
                                           .y = binder.tensor(instance.outputs[kY]),
                                           .gate = gate_});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const ValueInfo info = recorder.info(instance.inputs[kX]);
    return recorder.Emit(std::make_shared<SwiGluBackwardOp>(gate_),
                         {output_grads[kY], instance.inputs[kX]},
                         {{.shape = info.shape, .dtype = info.dtype, .name = "dx"}});
  }

 private:
  const GateActivation gate_;
};

}  // namespace

Value SwiGlu(Recorder& recorder, Value x, GateActivation gate) {
  const ValueInfo info = recorder.info(x);
  CHECK(info.shape.rank() == 2 && info.shape[1] % 2 == 0) << "swiglu: " << info;
  return recorder.Emit(
      std::make_shared<SwiGluOp>(gate), {x},
      {{.shape = {info.shape[0], info.shape[1] / 2}, .dtype = info.dtype, .name = "gated"}})[0];
}

}  // namespace trainyard::ops
