// How state spaces go on from part to part of sequences that context ranks divide: each rank
// gathers the ends of all parts, and chains them.
#include "kernels/state_space/state_ends.h"

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/output_like.h"
#include "models/program/ops/state_ops.h"

namespace trainyard::ops {
namespace {

// FLOPs are those of the whole sequence, which StateScan counts, so none of the ops here have any.

class StateEndsBackwardOp final : public NamedOp<StateEndsBackwardOp> {
 public:
  enum Input { kDends, kXbc, kDt, kDtBias, kALog, kPositions, kInputs };
  enum Output { kDxbc, kDdt, kDdtBias, kDaLog, kOutputs };
  static constexpr size_t kOptionalInputs = 1;
  explicit StateEndsBackwardOp(const StateDims& dims) : dims_(dims) {}
  absl::string_view name() const override { return "state_ends_backward"; }
  std::optional<Kept> KeptOnGpu(const Program& program, const Instance& instance) const override {
    return KeptOf(StateCall::kEndsBackward, program, instance.inputs[kXbc], dims_);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto in = [&](size_t i) { return binder.tensor(instance.inputs[i]); };
    const auto out = [&](size_t i) { return binder.tensor(instance.outputs[i]); };
    StateEndsBackwardArgs args{.dends = in(kDends),
                               .xbc = in(kXbc),
                               .dt = in(kDt),
                               .dt_bias = in(kDtBias),
                               .a_log = in(kALog),
                               .dims = dims_,
                               .dxbc = out(kDxbc),
                               .ddt = out(kDdt),
                               .ddt_bias = out(kDdtBias),
                               .da_log = out(kDaLog),
                               .write_ddt_bias = binder.write(instance.outputs[kDdtBias]),
                               .write_da_log = binder.write(instance.outputs[kDaLog])};
    if (instance.inputs.size() > kPositions) args.document_positions = in(kPositions);
    return binder.Kernel(args);
  }

 private:
  const StateDims dims_;
};

class StateEndsOp final : public NamedOp<StateEndsOp> {
 public:
  enum Input { kXbc, kDt, kDtBias, kALog, kPositions, kInputs };
  enum Output { kEnds, kOutputs };
  static constexpr size_t kOptionalInputs = 1;
  explicit StateEndsOp(const StateDims& dims) : dims_(dims) {}
  absl::string_view name() const override { return "state_ends"; }
  std::string attributes() const override { return ToString(dims_); }
  std::optional<Kept> KeptOnGpu(const Program& program, const Instance& instance) const override {
    return KeptOf(StateCall::kEnds, program, instance.inputs[kXbc], dims_);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto in = [&](size_t i) { return binder.tensor(instance.inputs[i]); };
    StateEndsForwardArgs args{.xbc = in(kXbc),
                              .dt = in(kDt),
                              .dt_bias = in(kDtBias),
                              .a_log = in(kALog),
                              .dims = dims_,
                              .ends = binder.tensor(instance.outputs[kEnds])};
    if (instance.inputs.size() > kPositions) args.document_positions = in(kPositions);
    return binder.Kernel(args);
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const std::vector<Value>& in = instance.inputs;
    std::vector<Value> inputs = {output_grads[kEnds]};
    inputs.insert(inputs.end(), in.begin(), in.end());
    const std::vector<Value> grads =
        recorder.Emit(std::make_shared<StateEndsBackwardOp>(dims_), std::move(inputs),
                      {OutputLike(recorder, in[kXbc], "dxbc"), OutputLike(recorder, in[kDt], "ddt"),
                       recorder.GradientOutput(in[kDtBias]), recorder.GradientOutput(in[kALog])});
    std::vector<Value> results(in.size());
    results[kXbc] = grads[StateEndsBackwardOp::kDxbc];
    results[kDt] = grads[StateEndsBackwardOp::kDdt];
    return results;
  }

 private:
  const StateDims dims_;
};

// The place of a rank among those that divide a sequence.
struct Chain {
  int64_t heads, ranks, rank;
};

class StateStartsBackwardOp final : public NamedOp<StateStartsBackwardOp> {
 public:
  enum Input { kDstarts, kEnds, kInputs };
  enum Output { kDends, kOutputs };
  explicit StateStartsBackwardOp(const Chain& chain) : chain_(chain) {}
  absl::string_view name() const override { return "state_starts_backward"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(
        StateStartsBackwardArgs{.dstarts = binder.tensor(instance.inputs[kDstarts]),
                                .ends = binder.tensor(instance.inputs[kEnds]),
                                .heads = chain_.heads,
                                .ranks = chain_.ranks,
                                .rank = chain_.rank,
                                .dends = binder.tensor(instance.outputs[kDends])});
  }

 private:
  const Chain chain_;
};

// From the ends of all ranks to the starts of this rank's parts.
class StateStartsOp final : public NamedOp<StateStartsOp> {
 public:
  enum Input { kEnds, kInputs };
  enum Output { kStarts, kOutputs };
  explicit StateStartsOp(const Chain& chain) : chain_(chain) {}
  absl::string_view name() const override { return "state_starts"; }
  std::string attributes() const override { return absl::StrCat("heads=", chain_.heads); }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(
        StateStartsForwardArgs{.ends = binder.tensor(instance.inputs[kEnds]),
                               .heads = chain_.heads,
                               .ranks = chain_.ranks,
                               .rank = chain_.rank,
                               .starts = binder.tensor(instance.outputs[kStarts])});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const ValueInfo info = recorder.info(instance.inputs[kEnds]);
    return recorder.Emit(std::make_shared<StateStartsBackwardOp>(chain_),
                         {output_grads[kStarts], instance.inputs[kEnds]},
                         {{.shape = info.shape, .dtype = info.dtype, .name = "dends"}});
  }

 private:
  const Chain chain_;
};

}  // namespace

Value StateStarts(Recorder& recorder, const StateScanInputs& inputs, const StateDims& dims) {
  const int64_t parts = recorder.info(inputs.xbc).shape[0] / dims.sequence;
  const DType dtype = recorder.precision().statistic;
  std::vector<Value> values = {inputs.xbc, inputs.dt, inputs.dt_bias, inputs.a_log};
  if (inputs.positions.valid()) values.push_back(inputs.positions);
  const Value ends = recorder.Emit(
      std::make_shared<StateEndsOp>(dims), std::move(values),
      {{.shape = {parts, dims.state_columns() + dims.heads}, .dtype = dtype, .name = "ends"}})[0];
  const SequencePart part = recorder.part();
  return recorder.Emit(
      std::make_shared<StateStartsOp>(
          Chain{.heads = dims.heads, .ranks = part.ranks, .rank = part.rank}),
      {AllGather(recorder, ends, Axis::kContext)},
      {{.shape = {parts, dims.state_columns()}, .dtype = dtype, .name = "starts"}})[0];
}

}  // namespace trainyard::ops
