#include "models/program/ops/quantize.h"

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/products/amax_history.h"
#include "kernels/products/quantize.h"
#include "models/program/amax_history.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

std::string Text(const ScaleBlock& block) {
  return absl::StrCat("block=", block.rows, "x", block.columns);
}

// The greatest absolute value of each block, on all ranks that divide the blocks.
class AmaxOp final : public NamedOp<AmaxOp> {
 public:
  enum Input { kX, kInputs };
  enum Output { kAmax, kOutputs };
  AmaxOp(const ScaleBlock& block, AxisSet axes, bool of_history)
      : block_(block), axes_(axes), of_history_(of_history) {}
  absl::string_view name() const override { return "amax"; }
  AxisSet group() const override { return axes_; }
  // What a history notes at the end of backward is kept, not computed again.
  bool has_effect() const override { return of_history_; }
  std::string attributes() const override {
    std::ostringstream out;
    out << Text(block_) << " axes=" << axes_;
    return out.str();
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance& instance) const override {
    if (axes_.empty()) return {};
    return {CallsOf(CollectiveOp::kAllReduceMax, 1,
                    int64_t(program.info(instance.outputs[kAmax]).bytes()),
                    program.mesh.size(axes_))};
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Tensor amax = binder.tensor(instance.outputs[kAmax]);
    Call find = binder.Kernel(
        AmaxArgs{.x = binder.tensor(instance.inputs[kX]), .block = block_, .amax = amax});
    if (axes_.empty()) return find;
    return [find = std::move(find), &collective = binder.collective(axes_), amax](Exec& exec) {
      find(exec);
      collective.AllReduceMax(amax);
    };
  }

 private:
  ScaleBlock block_;
  AxisSet axes_;
  bool of_history_;
};

// Which copies of the rounded numbers an instance writes: it is recorded with both, and RemoveDead
// leaves those that products read.
enum class RoundedCopies { kBoth, kByRows, kByColumns };

// The gradient of a rounded number is passed on to the number ("straight through").
class QuantizeOp final : public NamedOp<QuantizeOp> {
 public:
  enum Input { kX, kAmax, kInputs };  // kAmax: the blocks' greatest values, or a history.
  // kSecond, by columns, is there if there are two copies.
  enum Output { kScales, kFirst, kSecond, kOutputs };
  static constexpr size_t kOptionalOutputs = 1;
  explicit QuantizeOp(const ScaleBlock& block, RoundedCopies copies = RoundedCopies::kBoth)
      : block_(block), copies_(copies) {}
  absl::string_view name() const override { return "quantize"; }
  std::string attributes() const override {
    return absl::StrCat(Text(block_), copies_ == RoundedCopies::kBoth     ? " both"
                                      : copies_ == RoundedCopies::kByRows ? " by_rows"
                                                                          : " by_columns");
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    QuantizeArgs args{.x = binder.tensor(instance.inputs[kX]),
                      .block = block_,
                      .amax = binder.tensor(instance.inputs[kAmax]),
                      .scales = binder.tensor(instance.outputs[kScales])};
    const Tensor first = binder.tensor(instance.outputs[kFirst]);
    (copies_ == RoundedCopies::kByColumns ? args.by_columns : args.y) = first;
    if (copies_ == RoundedCopies::kBoth) {
      args.by_columns = binder.tensor(instance.outputs[kSecond]);
    }
    return binder.Kernel(args);
  }
  Instance Narrowed(const Instance& instance, const std::vector<bool>& read) const override {
    if (copies_ != RoundedCopies::kBoth || (read[kFirst] && read[kSecond])) return instance;
    const bool by_columns = read[kSecond];
    Instance one = instance;
    one.op = std::make_shared<QuantizeOp>(
        block_, by_columns ? RoundedCopies::kByColumns : RoundedCopies::kByRows);
    one.outputs.erase(one.outputs.begin() + (by_columns ? kFirst : kSecond));
    return one;
  }
  std::vector<Value> Backward(Recorder&, const Instance&,
                              std::span<const Value> output_grads) const override {
    return {output_grads[kFirst], Value{}};
  }

 private:
  ScaleBlock block_;
  RoundedCopies copies_;
};

class AmaxHistoryGradientOp final : public NamedOp<AmaxHistoryGradientOp> {
 public:
  enum Input { kAmax, kInputs };
  enum Output { kGradient, kOutputs };
  absl::string_view name() const override { return "amax_history_gradient"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Value gradient = instance.outputs[kGradient];
    return binder.Kernel(AmaxHistoryGradientArgs{.amax = binder.tensor(instance.inputs[kAmax]),
                                                 .gradient = binder.tensor(gradient),
                                                 .write = binder.write(gradient)});
  }
};

class AmaxHistoryOp final : public Op {
 public:
  AmaxHistoryOp(const StateRange& range, int64_t steps) : range_(range), steps_(steps) {}
  absl::string_view name() const override { return "amax_history"; }
  bool has_effect() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat("flat=", range_.flat.offset, "+", range_.flat.elements,
                        " shard=", range_.shard.offset, " steps=", steps_);
  }
  Cost CostOf(const Program& program, const Instance&) const override {
    return {.bytes = double(2 * range_.flat.elements) * double(SizeOf(program.precision.master))};
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    const auto histories = [&](FlatBuffer buffer, const FlatRange& range) {
      Tensor tensor = binder.flat(buffer, range);
      tensor.shape = {range.elements / steps_, steps_};
      return tensor;
    };
    return binder.Kernel(AmaxHistoryArgs{.history = histories(FlatBuffer::kMaster, range_.shard),
                                         .gradient = histories(FlatBuffer::kGradient, range_.flat),
                                         .state = binder.step_state()});
  }

 private:
  StateRange range_;
  int64_t steps_;
};

// For how long what is computed holds.
enum class Holds { kMicroBatch, kStep, kRun };

// How long the greatest values of an operand hold, and its rounded numbers.
struct OperandHolds {
  Holds amax = Holds::kMicroBatch;
  Holds rounded = Holds::kMicroBatch;
};

OperandHolds HoldsOf(const Recorder& recorder, const OperandOf& operand, Value history) {
  const ValueInfo& info = recorder.info(operand.value);
  if (info.kind != ValueKind::kParameter || !recorder.program().training) return {};
  const WeightRounding& rounding = recorder.weight_rounding();
  const bool frozen = recorder.program().storage(operand.value).frozen.has_value();
  // Whether rounded weights are kept must not decide when greatest values are found: ranks that
  // share a weight find them together, and each decides by its own memory what it keeps.
  if (frozen && !history.valid() && !rounding.in_windows) {
    return {Holds::kRun, rounding.kept ? Holds::kRun : Holds::kMicroBatch};
  }
  if (rounding.micro_batches == 1) return {};
  return {Holds::kStep, rounding.kept ? Holds::kStep : Holds::kMicroBatch};
}

// Emits an instance whose outputs hold for so long. Its inputs must do so, too.
std::vector<Value> EmitFor(Recorder& recorder, Holds holds, std::shared_ptr<const Op> op,
                           const std::vector<Value>& inputs,
                           const std::vector<Recorder::Output>& outputs) {
  if (holds == Holds::kMicroBatch) return recorder.Emit(std::move(op), inputs, outputs);
  const bool of_step = holds == Holds::kStep;
  const List list = recorder.list();
  if (of_step) recorder.set_when(When::kFirstMicroBatch);
  if (!of_step) recorder.set_list(List::kPrepare);
  const std::vector<Value> values = recorder.Emit(std::move(op), inputs, outputs);
  recorder.set_when(When::kAlways);
  recorder.set_list(list);
  for (Value value : values) {
    recorder.mutable_program().values[size_t(value.id)].kind =
        of_step ? ValueKind::kStepConstant : ValueKind::kConstant;
  }
  return values;
}

// The history of a tensor's greatest values.
Value HistoryOf(Recorder& recorder, const OperandOf& operand) {
  const Scaling& scaling = *operand.format.scaling;
  if (scaling.history == 0) return {};
  CHECK(!scaling.kept && !scaling.summed)
      << operand.weight << ": a history is of a tensor with one scale";
  return recorder.Parameter({.name = NameOfHistory(operand.weight, operand.what),
                             .shape = {scaling.history},
                             .unrounded = true,
                             .state = StateRule::AmaxHistory()});
}

// Notes the greatest value of this micro-batch for the history. A value that several roles round is
// noted once.
void NoteAmax(Recorder& recorder, Value history, Value value, Holds holds,
              const Recorder::Output& amax) {
  if (!recorder.program().training) return;
  Value& noted = recorder.amax_of_history()[{history, value}];
  if (noted.valid()) return;
  const auto op = std::make_shared<AmaxOp>(ScaleBlock{}, AxisSet{}, true);
  noted = EmitFor(recorder, holds, op, {value}, {amax})[AmaxOp::kAmax];
}

// The greatest values of the operand's blocks in this micro-batch.
Value AmaxOf(Recorder& recorder, const OperandOf& operand, const ScaleBlock& block, Holds holds,
             const Recorder::Output& amax) {
  const Scaling& scaling = *operand.format.scaling;
  AxisSet axes;  // Along which ranks divide the numbers of a block.
  if (scaling.kept == 0) axes = axes | operand.dims[1 - operand.summed].axes;
  if (scaling.summed == 0) axes = axes | operand.dims[operand.summed].axes;
  const auto op = std::make_shared<AmaxOp>(block, axes & recorder.mesh().active(), false);
  return EmitFor(recorder, holds, op, {operand.value}, {amax})[AmaxOp::kAmax];
}

// A block of several numbers must end where a rank's part ends, or a layout would have other blocks
// than one rank has. Notes the blocks that do not.
void NoteDividedBlocks(Recorder& recorder, const OperandOf& operand, const ScaleBlock& block) {
  std::vector<DividedBlock>& noted = recorder.mutable_program().divided_blocks;
  for (const auto& [i, size] : {std::pair(0, block.rows), std::pair(1, block.columns)}) {
    for (const RunOfDim& run : operand.dims[i].runs) {
      if (size == 0 || run.length % size == 0 || recorder.mesh().size(run.axes) == 1) continue;
      const DividedBlock divided{.weight = run.weight.empty() ? operand.weight : run.weight,
                                 .dim = operand.dims[i].dim,
                                 .block = size,
                                 .part = run.length,
                                 .axes = run.axes};
      if (std::find(noted.begin(), noted.end(), divided) == noted.end()) noted.push_back(divided);
    }
  }
}

// What was rounded before in the same way: with the same `of`, block and history. A weight that
// several blocks use is rounded in each of them, because they may lie on several pipeline stages.
const Quantized* FindBefore(Recorder& recorder, const Quantized& wanted, DType narrow) {
  const bool is_weight = recorder.info(wanted.of).kind == ValueKind::kParameter;
  for (const Quantized& before : recorder.quantized()) {
    const ValueInfo& values = recorder.info(before.values);
    if (before.of == wanted.of && before.block == wanted.block &&
        before.history == wanted.history && values.dtype == narrow &&
        (!is_weight || values.block == recorder.block())) {
      return &before;
    }
  }
  return nullptr;
}

}  // namespace

Quantized Quantize(Recorder& recorder, const OperandOf& operand) {
  const Scaling& scaling = *operand.format.scaling;
  const ValueInfo info = recorder.info(operand.value);
  ScaleBlock block{.rows = scaling.kept, .columns = scaling.summed};
  if (operand.summed == 0) std::swap(block.rows, block.columns);
  NoteDividedBlocks(recorder, operand, block);
  const DType narrow = operand.format.dtype;
  const Value history = HistoryOf(recorder, operand);
  const OperandHolds holds = HoldsOf(recorder, operand, history);
  const Quantized* const before =
      FindBefore(recorder, {.of = operand.value, .block = block, .history = history}, narrow);
  const bool is_weight = info.kind == ValueKind::kParameter;
  if (before && (!is_weight || holds.rounded != Holds::kMicroBatch)) return *before;
  const List list = recorder.list();
  // The rounded operand may be read by either list of backward.
  if (list == List::kBackwardWeight) recorder.set_list(List::kBackwardInput);
  Recorder::Output scales =
      Recorder::Output::Memory("amax", block.ScalesOf(info.shape), AccumulateOfDType(info.dtype));
  scales.varying = operand.varying;
  if (history.valid()) NoteAmax(recorder, history, operand.value, holds.amax, scales);
  const bool found = before && holds.amax != Holds::kMicroBatch;
  const Value amax = history.valid() ? history
                     : found         ? before->amax
                                     : AmaxOf(recorder, operand, block, holds.amax, scales);
  scales.name = "scales";
  Recorder::Output by_columns = Recorder::Output::Memory(
      "rounded by columns", {info.shape.back(), info.shape.rows()}, narrow);
  by_columns.varying = operand.varying;
  const std::vector<Value> outputs =
      EmitFor(recorder, holds.rounded, std::make_shared<QuantizeOp>(block), {operand.value, amax},
              {scales,
               {.shape = info.shape,
                .dtype = narrow,
                .name = "rounded",
                .differentiable = info.differentiable,
                .varying = operand.varying},
               by_columns});
  recorder.set_list(list);
  return recorder.quantized().emplace_back(Quantized{.of = operand.value,
                                                     .values = outputs[QuantizeOp::kFirst],
                                                     .by_columns = outputs[QuantizeOp::kSecond],
                                                     .scales = outputs[QuantizeOp::kScales],
                                                     .amax = amax,
                                                     .block = block,
                                                     .history = history});
}

void RecordHistories(Recorder& recorder) {
  recorder.set_list(List::kBackwardInput);
  for (const auto& [noted, amax] : recorder.amax_of_history()) {
    recorder.set_block(recorder.info(amax).block);
    recorder.Emit(std::make_shared<AmaxHistoryGradientOp>(), {amax},
                  {Recorder::Output::Into(recorder.Gradient(noted.first))});
  }
}

void AmaxHistory(Recorder& recorder, const StateRange& range, int64_t steps) {
  recorder.EmitEffect(std::make_shared<AmaxHistoryOp>(range, steps), List::kOptimizer);
}

}  // namespace trainyard::ops
