// How state spaces go on from part to part of sequences that context ranks divide: each rank
// gathers the ends of all parts, and chains them.
#include "kernels/state_ends.h"

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/output_like.h"
#include "models/program/ops/state_ops.h"

namespace trainyard::ops {
namespace {

// FLOPs are those of the whole sequence, which StateScan counts, so none of the ops here have any.

// Inputs: dends, xbc, dt, dt_bias, a_log. Outputs: dxbc, ddt, the gradients of dt_bias and a_log.
class StateEndsBackwardOp final : public Op {
 public:
  explicit StateEndsBackwardOp(const StateDims& dims) : dims_(dims) {}
  absl::string_view name() const override { return "state_ends_backward"; }
  std::optional<Kept> KeptOnGpu(const Program& program, const Instance& instance) const override {
    return KeptOf(StateCall::kEndsBackward, program, instance.inputs[1], dims_);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto in = [&](size_t i) { return binder.tensor(instance.inputs[i]); };
    const auto out = [&](size_t i) { return binder.tensor(instance.outputs[i]); };
    return binder.Kernel(StateEndsBackwardArgs{.dends = in(0),
                                               .xbc = in(1),
                                               .dt = in(2),
                                               .dt_bias = in(3),
                                               .a_log = in(4),
                                               .dims = dims_,
                                               .dxbc = out(0),
                                               .ddt = out(1),
                                               .ddt_bias = out(2),
                                               .da_log = out(3),
                                               .write_ddt_bias = binder.write(instance.outputs[2]),
                                               .write_da_log = binder.write(instance.outputs[3])});
  }

 private:
  const StateDims dims_;
};

// Inputs: xbc, dt, dt_bias, a_log. Output: ends.
class StateEndsOp final : public Op {
 public:
  explicit StateEndsOp(const StateDims& dims) : dims_(dims) {}
  absl::string_view name() const override { return "state_ends"; }
  std::string attributes() const override { return ToString(dims_); }
  std::optional<Kept> KeptOnGpu(const Program& program, const Instance& instance) const override {
    return KeptOf(StateCall::kEnds, program, instance.inputs[0], dims_);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(StateEndsForwardArgs{.xbc = binder.tensor(instance.inputs[0]),
                                              .dt = binder.tensor(instance.inputs[1]),
                                              .dt_bias = binder.tensor(instance.inputs[2]),
                                              .a_log = binder.tensor(instance.inputs[3]),
                                              .dims = dims_,
                                              .ends = binder.tensor(instance.outputs[0])});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const std::vector<Value>& in = instance.inputs;
    const std::vector<Value> grads = recorder.Emit(
        std::make_shared<StateEndsBackwardOp>(dims_), {output_grads[0], in[0], in[1], in[2], in[3]},
        {OutputLike(recorder, in[0], "dxbc"), OutputLike(recorder, in[1], "ddt"),
         recorder.GradientOutput(in[2]), recorder.GradientOutput(in[3])});
    return {grads[0], grads[1], {}, {}};
  }

 private:
  const StateDims dims_;
};

// The place of a rank among those that divide a sequence.
struct Chain {
  int64_t heads, ranks, rank;
};

// Inputs: dstarts, ends. Output: dends.
class StateStartsBackwardOp final : public Op {
 public:
  explicit StateStartsBackwardOp(const Chain& chain) : chain_(chain) {}
  absl::string_view name() const override { return "state_starts_backward"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(StateStartsBackwardArgs{.dstarts = binder.tensor(instance.inputs[0]),
                                                 .ends = binder.tensor(instance.inputs[1]),
                                                 .heads = chain_.heads,
                                                 .ranks = chain_.ranks,
                                                 .rank = chain_.rank,
                                                 .dends = binder.tensor(instance.outputs[0])});
  }

 private:
  const Chain chain_;
};

// Input: ends of all ranks. Output: starts of this rank's parts.
class StateStartsOp final : public Op {
 public:
  explicit StateStartsOp(const Chain& chain) : chain_(chain) {}
  absl::string_view name() const override { return "state_starts"; }
  std::string attributes() const override { return absl::StrCat("heads=", chain_.heads); }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(StateStartsForwardArgs{.ends = binder.tensor(instance.inputs[0]),
                                                .heads = chain_.heads,
                                                .ranks = chain_.ranks,
                                                .rank = chain_.rank,
                                                .starts = binder.tensor(instance.outputs[0])});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const ValueInfo info = recorder.info(instance.inputs[0]);
    return recorder.Emit(std::make_shared<StateStartsBackwardOp>(chain_),
                         {output_grads[0], instance.inputs[0]},
                         {{.shape = info.shape, .dtype = info.dtype, .name = "dends"}});
  }

 private:
  const Chain chain_;
};

}  // namespace

Value StateStarts(Recorder& recorder, const StateScanInputs& inputs, const StateDims& dims) {
  const int64_t parts = recorder.info(inputs.xbc).shape[0] / dims.sequence;
  const DType dtype = recorder.precision().statistic;
  const Value ends = recorder.Emit(
      std::make_shared<StateEndsOp>(dims), {inputs.xbc, inputs.dt, inputs.dt_bias, inputs.a_log},
      {{.shape = {parts, dims.state_columns() + dims.heads}, .dtype = dtype, .name = "ends"}})[0];
  const SequencePart part = recorder.part();
  return recorder.Emit(
      std::make_shared<StateStartsOp>(
          Chain{.heads = dims.heads, .ranks = part.ranks, .rank = part.rank}),
      {AllGather(recorder, ends, Axis::kContext)},
      {{.shape = {parts, dims.state_columns()}, .dtype = dtype, .name = "starts"}})[0];
}

}  // namespace trainyard::ops
