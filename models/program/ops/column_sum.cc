#include "kernels/column_sum.h"

#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

class ColumnSumOp final : public Op {
 public:
  absl::string_view name() const override { return "column_sum"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(ColumnSumArgs{.x = binder.tensor(instance.inputs[0]),
                                       .y = binder.tensor(instance.outputs[0]),
                                       .write = binder.write(instance.outputs[0])});
  }
};

}  // namespace

void BiasGradient(Recorder& recorder, Value dy, Value bias) {
  if (!recorder.IsTrainable(bias)) return;
  recorder.Emit(std::make_shared<ColumnSumOp>(), {dy},
                {Recorder::Output::Into(recorder.Gradient(bias))});
}

}  // namespace trainyard::ops
