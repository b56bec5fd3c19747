#include "kernels/sums/column_sum.h"

#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

class ColumnSumOp final : public NamedOp<ColumnSumOp> {
 public:
  enum Input { kX, kInputs };
  enum Output { kY, kOutputs };
  absl::string_view name() const override { return "column_sum"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(ColumnSumArgs{.x = binder.tensor(instance.inputs[kX]),
                                       .y = binder.tensor(instance.outputs[kY]),
                                       .write = binder.write(instance.outputs[kY])});
  }
};

}  // namespace

void BiasGradient(Recorder& recorder, Value dy, Value bias) {
  if (!recorder.IsTrainable(bias)) return;
  recorder.Emit(std::make_shared<ColumnSumOp>(), {dy},
                {Recorder::Output::Into(recorder.Gradient(bias))});
}

}  // namespace trainyard::ops
