#include "kernels/experts/load_balance.h"

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/samples.h"

namespace trainyard::ops {
namespace {

struct Balance {
  RouterScoring scoring;
  double coefficient;
  SampleRows sets;
  AxisSet axes;  // The tokens of a set are divided over these axes.
};

// dlogits has the dtype that the router's products take.
class LoadBalanceBackwardOp final : public NamedOp<LoadBalanceBackwardOp> {
 public:
  enum Input { kLogits, kCounts, kInputs };
  enum Output { kDlogits, kOutputs };
  explicit LoadBalanceBackwardOp(const Balance& balance) : balance_(balance) {}
  absl::string_view name() const override { return "load_balance_backward"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(
        LoadBalanceBackwardArgs{.logits = binder.tensor(instance.inputs[kLogits]),
                                .counts = binder.tensor(instance.inputs[kCounts]),
                                .sets = balance_.sets,
                                .scoring = balance_.scoring,
                                .coefficient = balance_.coefficient,
                                .state = binder.step_state(),
                                .dlogits = binder.tensor(instance.outputs[kDlogits])});
  }

 private:
  Balance balance_;
};

// The counts are summed over all ranks that have tokens of the sets.
class LoadBalanceOp final : public NamedOp<LoadBalanceOp> {
 public:
  enum Input { kLogits, kExperts, kInputs };
  enum Output { kCounts, kOutputs };
  LoadBalanceOp(const Balance& balance, bool per_sequence)
      : balance_(balance), per_sequence_(per_sequence) {}
  absl::string_view name() const override { return "load_balance"; }
  AxisSet group() const override { return balance_.axes; }
  bool is_loss() const override { return true; }
  bool has_effect() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat("scoring=", int(balance_.scoring), " coefficient=", balance_.coefficient,
                        per_sequence_ ? " per_sequence" : "");
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance& instance) const override {
    return {CallsOf(CollectiveOp::kAllReduceSum, 1,
                    int64_t(program.info(instance.outputs[kCounts]).bytes()),
                    program.mesh.size(balance_.axes))};
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Tensor counts = binder.tensor(instance.outputs[kCounts]);
    Collective* const collective =
        balance_.axes.empty() ? nullptr : &binder.collective(balance_.axes);
    Call count =
        binder.Kernel(LoadBalanceCountsArgs{.experts = binder.tensor(instance.inputs[kExperts]),
                                            .sets = balance_.sets,
                                            .counts = counts});
    Call loss =
        binder.Kernel(LoadBalanceForwardArgs{.logits = binder.tensor(instance.inputs[kLogits]),
                                             .counts = counts,
                                             .sets = balance_.sets,
                                             .scoring = balance_.scoring,
                                             .coefficient = balance_.coefficient,
                                             .state = binder.step_state()});
    return [collective, counts, count = std::move(count), loss = std::move(loss)](Exec& exec) {
      count(exec);
      if (collective != nullptr) collective->AllReduceSum(counts);
      loss(exec);
    };
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value>) const override {
    const Value logits = instance.inputs[kLogits];
    const Value dlogits = recorder.Emit(
        std::make_shared<LoadBalanceBackwardOp>(balance_), {logits, instance.outputs[kCounts]},
        {{.shape = recorder.info(logits).shape,
          .dtype = recorder.precision()
                       .product({ProductKind::kRouter, ProductRole::kInputGradient})
                       .a.dtype,
          .name = "dlogits"}})[0];
    return {dlogits, {}};
  }

 private:
  Balance balance_;
  bool per_sequence_;
};

}  // namespace

void LoadBalance(Recorder& recorder, Value logits, Value experts,
                 const LoadBalanceOptions& options) {
  const ValueInfo info = recorder.info(logits);
  const Mesh& mesh = recorder.mesh();
  const int64_t tokens = info.shape.rows();
  const bool per_sequence = options.scope == AuxLossScope::kSequence;
  Balance balance{.scoring = options.scoring,
                  .coefficient = options.coefficient,
                  .sets = {.first = 0, .per_sample = tokens},
                  .axes = info.varying & mesh.active()};
  int64_t sets = 1;
  if (per_sequence) {
    balance.sets = SampleRowsOf(recorder);
    balance.axes = balance.axes & (kTensorAxes | Axis::kContext);
    sets = tokens * mesh.size(kTensorAxes) / recorder.part().rows;
  }
  recorder.Emit(std::make_shared<LoadBalanceOp>(balance, per_sequence), {logits, experts},
                {{.shape = per_sequence ? Shape{sets, info.shape.back()} : Shape{info.shape.back()},
                  .dtype = DType::kF64,
                  .name = "counts",
                  .differentiable = false}});
}

}  // namespace trainyard::ops
