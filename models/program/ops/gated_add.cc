#include "kernels/gated_add.h"

#include "models/program/binder.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/samples.h"

namespace trainyard::ops {
namespace {

// Inputs: dy, gate, h. Outputs: dgate, dh.
class GatedAddBackwardOp final : public Op {
 public:
  explicit GatedAddBackwardOp(const SampleRows& rows) : rows_(rows) {}
  absl::string_view name() const override { return "gated_add_backward"; }
  bool MayAlias(int output, int input) const override { return output == 1 && input == 2; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(GatedAddBackwardArgs{.dy = binder.tensor(instance.inputs[0]),
                                              .gate = binder.tensor(instance.inputs[1]),
                                              .h = binder.tensor(instance.inputs[2]),
                                              .rows = rows_,
                                              .dh = binder.tensor(instance.outputs[1]),
                                              .dgate = binder.tensor(instance.outputs[0])});
  }

 private:
  const SampleRows rows_;
};

// Inputs: x, gate, h.
class GatedAddOp final : public Op {
 public:
  explicit GatedAddOp(const SampleRows& rows) : rows_(rows) {}
  absl::string_view name() const override { return "gated_add"; }
  std::string attributes() const override { return ToString(rows_); }
  bool MayAlias(int, int input) const override { return input == 0 || input == 2; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(GatedAddForwardArgs{.x = binder.tensor(instance.inputs[0]),
                                             .gate = binder.tensor(instance.inputs[1]),
                                             .h = binder.tensor(instance.inputs[2]),
                                             .rows = rows_,
                                             .y = binder.tensor(instance.outputs[0])});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value dy = output_grads[0], gate = instance.inputs[1], h = instance.inputs[2];
    const ValueInfo rows = recorder.info(h), samples = recorder.info(gate);
    const auto of_branch =
        recorder.Emit(std::make_shared<GatedAddBackwardOp>(rows_), {dy, gate, h},
                      {{.shape = samples.shape, .dtype = samples.dtype, .name = "dgate"},
                       {.shape = rows.shape, .dtype = rows.dtype, .name = "dh"}});
    return {dy, of_branch[0], of_branch[1]};
  }

 private:
  const SampleRows rows_;
};

}  // namespace

Value GatedAdd(Recorder& recorder, Value x, Value gate, Value h) {
  const ValueInfo info = recorder.info(x), branch = recorder.info(h);
  CHECK(info.shape == branch.shape && info.dtype == branch.dtype)
      << "gated_add: " << info << " and " << branch;
  return recorder.Emit(std::make_shared<GatedAddOp>(SampleRowsOf(recorder)), {x, gate, h},
                       {{.shape = info.shape, .dtype = info.dtype, .name = "sum"}})[0];
}

}  // namespace trainyard::ops
