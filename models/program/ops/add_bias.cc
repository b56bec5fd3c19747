#include "kernels/elementwise/add_bias.h"

#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// x is [T, N], and bias [N].
class AddBiasOp final : public NamedOp<AddBiasOp> {
 public:
  enum Input { kX, kBias, kInputs };
  enum Output { kY, kOutputs };
  absl::string_view name() const override { return "add_bias"; }
  bool MayAlias(int output, int input) const override { return output == kY && input == kX; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(AddBiasArgs{.x = binder.tensor(instance.inputs[kX]),
                                     .bias = binder.tensor(instance.inputs[kBias]),
                                     .y = binder.tensor(instance.outputs[kY])});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    BiasGradient(recorder, output_grads[kY], instance.inputs[kBias]);
    return {output_grads[kY], {}};
  }
};

}  // namespace

Value AddBias(Recorder& recorder, Value x, Value bias) {
  const ValueInfo info = recorder.info(x), b = recorder.info(bias);
  CHECK(info.shape.rank() == 2 && b.shape == Shape({info.shape[1]}))
      << "add_bias: " << info << " and " << b;
  return recorder.Emit(std::make_shared<AddBiasOp>(), {x, bias},
                       {{.shape = info.shape, .dtype = info.dtype, .name = "biased"}})[0];
}

}  // namespace trainyard::ops
