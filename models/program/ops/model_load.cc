#include "models/program/ops/model_load.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/elementwise/add.h"
#include "kernels/elementwise/copy_columns.h"
#include "kernels/experts/load_balance.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/ring.h"

namespace trainyard::ops {
namespace {

// dlogits has the dtype that the router's products take.
class AddLoadBackwardOp final : public NamedOp<AddLoadBackwardOp> {
 public:
  enum Input { kLogits, kTotal, kInputs };
  enum Output { kDlogits, kOutputs };
  explicit AddLoadBackwardOp(const LayerLoad& options) : options_(options) {}
  absl::string_view name() const override { return "add_load_backward"; }
  bool has_effect() const override { return true; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Tensor logits = binder.tensor(instance.inputs[kLogits]);
    const Tensor total = binder.tensor(instance.inputs[kTotal]);
    const SampleRows sets{.first = 0, .per_sample = logits.shape.rows()};
    Call loss = binder.Kernel(LoadBalanceForwardArgs{.logits = logits,
                                                     .counts = total,
                                                     .sets = sets,
                                                     .scoring = options_.scoring,
                                                     .coefficient = options_.coefficient,
                                                     .state = binder.step_state()});
    Call gradient = binder.Kernel(
        LoadBalanceBackwardArgs{.logits = logits,
                                .counts = total,
                                .sets = sets,
                                .scoring = options_.scoring,
                                .coefficient = options_.coefficient,
                                .state = binder.step_state(),
                                .dlogits = binder.tensor(instance.outputs[kDlogits])});
    return InOrder({std::move(loss), std::move(gradient)});
  }

 private:
  LayerLoad options_;
};

// The first layer has no load before it.
class AddLoadOp final : public NamedOp<AddLoadOp> {
 public:
  enum Input { kLogits, kExperts, kLoadBefore, kInputs };
  enum Output { kLoad, kOutputs };
  static constexpr size_t kOptionalInputs = 1;
  explicit AddLoadOp(const LayerLoad& options) : options_(options) {}
  absl::string_view name() const override { return "add_load"; }
  std::string attributes() const override {
    return absl::StrCat("scoring=", int(options_.scoring), " coefficient=", options_.coefficient);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Tensor experts = binder.tensor(instance.inputs[kExperts]);
    const Tensor load = binder.tensor(instance.outputs[kLoad]);
    Call count = binder.Kernel(
        LoadBalanceCountsArgs{.experts = experts,
                              .sets = {.first = 0, .per_sample = experts.shape.rows()},
                              .counts = load});
    if (instance.inputs.size() == kLoadBefore) return count;
    Call add = binder.Kernel(
        AddArgs{.a = load, .b = binder.tensor(instance.inputs[kLoadBefore]), .y = load});
    return InOrder({std::move(count), std::move(add)});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value logits = instance.inputs[kLogits], total = output_grads[kLoad];
    const Value dlogits =
        recorder.Emit(std::make_shared<AddLoadBackwardOp>(options_), {logits, total},
                      {{.shape = recorder.info(logits).shape,
                        .dtype = recorder.precision()
                                     .product({ProductKind::kRouter, ProductRole::kInputGradient})
                                     .a.dtype,
                        .name = "dlogits"}})[0];
    std::vector<Value> gradients = {dlogits, {}};
    if (instance.inputs.size() > kLoadBefore) gradients.push_back(total);
    return gradients;
  }

 private:
  LayerLoad options_;
};

// The load of all layers is summed over all ranks. The total is its gradient, too.
class BalanceLoadOp final : public NamedOp<BalanceLoadOp> {
 public:
  enum Input { kLoad, kInputs };
  enum Output { kTotal, kOutputs };
  explicit BalanceLoadOp(AxisSet axes) : axes_(axes) {}
  absl::string_view name() const override { return "balance_load"; }
  AxisSet group() const override { return axes_; }
  bool is_loss() const override { return true; }
  bool has_effect() const override { return true; }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance& instance) const override {
    if (axes_.empty()) return {};
    return {CallsOf(CollectiveOp::kAllReduceSum, 1,
                    int64_t(program.info(instance.outputs[kTotal]).bytes()),
                    program.mesh.size(axes_))};
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Tensor load = binder.tensor(instance.inputs[kLoad]);
    const Tensor total = binder.tensor(instance.outputs[kTotal]);
    Call copy = binder.Kernel(CopyColumnsArgs{
        .x = load, .x_begin = 0, .y = total, .y_begin = 0, .columns = load.shape.back()});
    if (axes_.empty()) return copy;
    return InOrder({std::move(copy), [&group = binder.collective(axes_), total](Exec&) {
                      group.AllReduceSum(total);
                    }});
  }
  std::vector<Value> Backward(Recorder&, const Instance& instance,
                              std::span<const Value>) const override {
    return {instance.outputs[kTotal]};
  }

 private:
  const AxisSet axes_;
};

}  // namespace

Value AddLoad(Recorder& recorder, Value logits, Value experts, Value load,
              const LayerLoad& options) {
  const int64_t count = recorder.info(logits).shape.back();
  std::vector<Value> inputs = {logits, experts};
  if (load.valid()) inputs.push_back(load);
  return recorder.Emit(std::make_shared<AddLoadOp>(options), inputs,
                       {{.shape = Shape{1, count}, .dtype = DType::kF64, .name = "load"}})[0];
}

void BalanceLoad(Recorder& recorder, Value load) {
  const ValueInfo info = recorder.info(load);
  recorder.Emit(
      std::make_shared<BalanceLoadOp>(info.varying & recorder.mesh().active()), {load},
      {{.shape = info.shape, .dtype = info.dtype, .name = "total", .differentiable = false}});
}

}  // namespace trainyard::ops
