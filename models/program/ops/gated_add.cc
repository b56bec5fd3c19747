#include "kernels/elementwise/gated_add.h"

#include "models/program/binder.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/samples.h"

namespace trainyard::ops {
namespace {

class GatedAddBackwardOp final : public NamedOp<GatedAddBackwardOp> {
 public:
  enum Input { kDy, kGate, kH, kInputs };
  enum Output { kDgate, kDh, kOutputs };
  explicit GatedAddBackwardOp(const SampleRows& rows) : rows_(rows) {}
  absl::string_view name() const override { return "gated_add_backward"; }
  bool MayAlias(int output, int input) const override { return output == kDh && input == kH; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(GatedAddBackwardArgs{.dy = binder.tensor(instance.inputs[kDy]),
                                              .gate = binder.tensor(instance.inputs[kGate]),
                                              .h = binder.tensor(instance.inputs[kH]),
                                              .rows = rows_,
                                              .dh = binder.tensor(instance.outputs[kDh]),
                                              .dgate = binder.tensor(instance.outputs[kDgate])});
  }

 private:
  const SampleRows rows_;
};

class GatedAddOp final : public NamedOp<GatedAddOp> {
 public:
  enum Input { kX, kGate, kH, kInputs };
  enum Output { kY, kOutputs };
  explicit GatedAddOp(const SampleRows& rows) : rows_(rows) {}
  absl::string_view name() const override { return "gated_add"; }
  std::string attributes() const override { return ToString(rows_); }
  bool MayAlias(int, int input) const override { return input == kX || input == kH; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(GatedAddForwardArgs{.x = binder.tensor(instance.inputs[kX]),
                                             .gate = binder.tensor(instance.inputs[kGate]),
                                             .h = binder.tensor(instance.inputs[kH]),
                                             .rows = rows_,
                                             .y = binder.tensor(instance.outputs[kY])});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value dy = output_grads[kY], gate = instance.inputs[kGate], h = instance.inputs[kH];
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
