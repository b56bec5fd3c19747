#include "kernels/elementwise/add.h"

#include <utility>

#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

class AddOp final : public NamedOp<AddOp> {
 public:
  enum Input { kA, kB, kInputs };
  enum Output { kSum, kOutputs };
  absl::string_view name() const override { return "add"; }
  bool MayAlias(int, int) const override { return true; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(AddArgs{.a = binder.tensor(instance.inputs[kA]),
                                 .b = binder.tensor(instance.inputs[kB]),
                                 .y = binder.tensor(instance.outputs[kSum])});
  }
  std::vector<Value> Backward(Recorder&, const Instance&,
                              std::span<const Value> output_grads) const override {
    return {output_grads[kSum], output_grads[kSum]};
  }
};

}  // namespace

Value Add(Recorder& recorder, Value a, Value b) {
  const ValueInfo x = recorder.info(a), y = recorder.info(b);
  CHECK(x.shape == y.shape && x.dtype == y.dtype) << "add: " << x << " and " << y;
  return recorder.Emit(std::make_shared<AddOp>(), {a, b},
                       {{.shape = x.shape, .dtype = x.dtype, .name = "sum"}})[0];
}

Instance TakingSum(const Instance& add, const Instance& instance, std::shared_ptr<const Op> op) {
  Instance joined = instance;
  joined.op = std::move(op);
  joined.inputs.front() = add.inputs[AddOp::kA];
  joined.inputs.push_back(add.inputs[AddOp::kB]);
  joined.outputs.push_back(add.outputs[AddOp::kSum]);
  return joined;
}

Instance ReadingSum(const Instance& instance, std::shared_ptr<const Op> op) {
  Instance alone = instance;
  alone.op = std::move(op);
  alone.inputs.front() = instance.outputs.back();
  alone.inputs.pop_back();
  alone.outputs.pop_back();
  return alone;
}

}  // namespace trainyard::ops
