// The output projection and the cross-entropy of its logits in one op, one chunk of tokens after
// the other. No more than a chunk of the logits and of their gradient is ever in memory.
//
//   for each chunk   logits = x w^T, and their loss
//                    dlogits,  dw += dlogits^T x,  dx = dlogits w    if gradients are wanted
//
// The gradient of the loss needs no other gradient. So a training step does all of this once, at
// the start of its backward pass, where one kernel gives loss and dlogits, unless the vocabulary is
// divided; the forward instance runs only in validation. dlogits is gone
// when the chunk is done, so the weight's gradient cannot be delayed and is in list kBackwardInput.
//
// A loss of whole answers gets the log-probabilities of the targets, and gives their gradient. Then
// the forward instance runs in training, too, and keeps the statistics; backward makes the logits a
// second time. These logits are as the head's product gives them, and those of the loss have the
// precision's dtype for them.
//
// With n tensor ranks, x is gathered before the first chunk, the statistics of each chunk are
// exchanged, and dx is summed and scattered after the last chunk. Letters: T rows of one rank, D
// width, V columns of logits on this rank, C rows of a chunk.
#include "kernels/loss/cross_entropy.h"

#include <algorithm>
#include <optional>
#include <sstream>

#include "models/program/binder.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/ring.h"
#include "models/program/product.h"

namespace trainyard::ops {
namespace {

// Returns the number of rows of a chunk, whose logits have at most so many bytes. But a chunk has
// enough rows that its products take longer than reading the weight and adding to the weight's
// gradient. All chunks but the last have the same number of rows.
int64_t ChunkRows(int64_t rows, int64_t row_bytes, int64_t bytes) {
  constexpr int64_t kLeastRows = 512;
  const int64_t most = std::max(kLeastRows, bytes / row_bytes);
  const int64_t chunks = (rows + most - 1) / most;
  return (rows + chunks - 1) / chunks;
}

constexpr ProductUse kHeadForward{ProductKind::kHead, ProductRole::kForward};
constexpr ProductUse kHeadInputGradient{ProductKind::kHead, ProductRole::kInputGradient};

enum class LossRole : uint8_t { kLoss, kGradient, kLogProbs, kLogProbsGradient };

bool IsGradient(LossRole role) {
  return role == LossRole::kGradient || role == LossRole::kLogProbsGradient;
}

struct Division {
  AxisSet axes;  // The tensor ranks' axes; empty: the vocabulary is not divided.
  VocabSlice slice;
  int64_t rows;   // n T.
  int64_t chunk;  // Rows of each chunk but the last.
};

// The gradients that backward has to compute.
struct Wanted {
  bool x = true;
  bool weight = true;
  int count() const { return int(x) + int(weight); }
};

class LinearCrossEntropyOp final : public Op {
 public:
  // [T, D], [V, D], [n T]. kLogProbsGradient also has the last two, [n T].
  enum Input { kX, kWeight, kTargets, kInputs, kGivenLse = kInputs, kDlogProbs, kAllInputs };
  // All but the first three are memory. An instance has those of which Has() is true.
  enum Output {
    kDx,              // [T, D]
    kDweight,         // [V, D]
    kTargetLogProbs,  // [n T]
    kLogits,          // [C, V]
    kLse,             // [C]; with kTargetLogProbs [n T], for backward.
    kAllX,            // [n T, D], overwritten by its gradient.
    kStatistics,      // [C, 3]
    kAllStatistics,   // [n, C, 3]
    kDlogits,         // [C, V]; if missing, in the memory of the logits.
    kOutputs
  };
  // `converted`: whether logits and their gradients have different dtypes.
  LinearCrossEntropyOp(LossRole role, const Division& division, const Wanted& wanted,
                       bool converted)
      : role_(role), division_(division), wanted_(wanted), converted_(converted) {}

  bool Has(Output output) const {
    const bool gradient = IsGradient(role_);
    switch (output) {
      case kDx:
        return gradient && wanted_.x;
      case kDweight:
        return gradient && wanted_.weight;
      case kTargetLogProbs:
        return role_ == LossRole::kLogProbs;
      case kLse:
        return !given_lse();
      case kAllX:
        return divided();
      case kStatistics:
      case kAllStatistics:
        return divided() && !given_lse();
      case kDlogits:
        return gradient && converted_;
      default:
        return true;
    }
  }
  // The index of an output, or of the next one if it is missing.
  size_t At(Output output) const {
    size_t at = 0;
    for (int before = 0; before < output; ++before) at += size_t(Has(Output(before)));
    return at;
  }
  std::optional<OperandCounts> operand_counts() const override {
    return OperandCounts{.inputs = size_t(given_lse() ? kAllInputs : kInputs),
                         .outputs = At(kOutputs)};
  }

  absl::string_view name() const override {
    constexpr absl::string_view kNames[] = {"linear_cross_entropy", "linear_cross_entropy_backward",
                                            "linear_log_probs", "linear_log_probs_backward"};
    return kNames[size_t(role_)];
  }
  AxisSet group() const override { return division_.axes; }
  bool is_loss() const override { return role_ == LossRole::kLoss; }
  bool has_effect() const override { return role_ != LossRole::kLogProbs; }
  // The last read of a chunk's x comes before the write of its dx.
  bool MayAlias(int output, int input) const override {
    return Has(kDx) && output == int(At(kDx)) && input == kX;
  }
  std::string attributes() const override {
    std::ostringstream out;
    out << "chunk=" << division_.chunk;
    if (!division_.axes.empty()) out << " axes=" << division_.axes;
    if (division_.slice.padding > 0) out << " padding=" << division_.slice.padding;
    if (!wanted_.x) out << " of the weight alone";
    if (!wanted_.weight) out << " of the input alone";
    return out.str();
  }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    const double products = IsGradient(role_) ? 1 + wanted_.count() : 1;
    // Products with padding are not useful work.
    const Shape& weight = program.info(instance.inputs[kWeight]).shape;
    cost.flops =
        products * ProductFlops(division_.rows, IdsOf(division_.slice, weight[0]) * weight[1]);
    return cost;
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance& instance) const override;
  Call Bind(const Binder& binder, const Instance& instance) const override;
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override;

 private:
  struct Tensors {
    Tensor x, dx;  // With the rows of all ranks.
    Tensor weight, targets, logits, dlogits, lse;
    Tensor log_probs;                   // Or their gradient.
    Tensor statistics, all_statistics;  // Used with several ranks.
  };
  Tensors TensorsOf(const Binder& binder, const Instance& instance) const;
  Tensors ChunkOf(const Tensors& whole, int64_t begin, int64_t rows) const;
  void BindLoss(const Binder& binder, const Tensors& chunk, std::vector<Call>& calls) const;
  bool divided() const { return !division_.axes.empty(); }
  bool given_lse() const { return role_ == LossRole::kLogProbsGradient; }
  bool of_log_probs() const { return given_lse() || role_ == LossRole::kLogProbs; }
  // Whether the kernel of the loss gives its gradient, too.
  bool together() const { return role_ == LossRole::kGradient && !divided(); }
  // Calls f(begin, rows) for each chunk.
  template <typename F>
  void ForEachChunk(F&& f) const {
    for (int64_t begin = 0; begin < division_.rows; begin += division_.chunk) {
      f(begin, std::min(division_.chunk, division_.rows - begin));
    }
  }

  const LossRole role_;
  const Division division_;
  const Wanted wanted_;
  const bool converted_;
};

std::vector<Communication> LinearCrossEntropyOp::CommunicationOf(const Program& program,
                                                                 const Instance& instance) const {
  if (!divided()) return {};
  const int ranks = program.mesh.size(division_.axes);
  const ValueInfo& x = program.info(instance.inputs[kX]);
  const int64_t x_bytes = ranks * int64_t(x.bytes());
  std::vector<Communication> sent = {CallsOf(CollectiveOp::kAllGather, 1, x_bytes, ranks)};
  ForEachChunk([&](int64_t, int64_t rows) {
    if (given_lse()) return;
    const int64_t bytes = ranks * rows * 3 * int64_t(SizeOf(program.precision.statistic));
    sent.push_back(CallsOf(CollectiveOp::kAllGather, 1, bytes, ranks));
  });
  if (Has(kDx)) {
    sent.push_back(CallsOf(CollectiveOp::kReduceScatterSum, 1, x_bytes, ranks));
  }
  return sent;
}

LinearCrossEntropyOp::Tensors LinearCrossEntropyOp::TensorsOf(const Binder& binder,
                                                              const Instance& instance) const {
  const auto out = [&](Output output) { return binder.tensor(instance.outputs[At(output)]); };
  Tensors t;
  t.x = binder.tensor(instance.inputs[kX]);
  t.weight = binder.tensor(instance.inputs[kWeight]);
  t.targets = binder.tensor(instance.inputs[kTargets]);
  if (Has(kDx)) t.dx = out(kDx);
  t.logits = t.dlogits = out(kLogits);
  t.lse = given_lse() ? binder.tensor(instance.inputs[kGivenLse]) : out(kLse);
  if (given_lse()) t.log_probs = binder.tensor(instance.inputs[kDlogProbs]);
  if (Has(kTargetLogProbs)) t.log_probs = out(kTargetLogProbs);
  if (divided()) t.x = t.dx = out(kAllX);
  if (Has(kStatistics)) {
    t.statistics = out(kStatistics);
    t.all_statistics = out(kAllStatistics);
  }
  if (Has(kDlogits)) t.dlogits = out(kDlogits);
  return t;
}

LinearCrossEntropyOp::Tensors LinearCrossEntropyOp::ChunkOf(const Tensors& whole, int64_t begin,
                                                            int64_t rows) const {
  Tensors t = whole;
  t.x = RowsOf(whole.x, begin, rows);
  if (Has(kDx)) t.dx = RowsOf(whole.dx, begin, rows);
  t.targets = RowsOf(whole.targets, begin, rows);
  for (Tensor* of_chunk : {&t.logits, &t.dlogits}) *of_chunk = RowsOf(*of_chunk, 0, rows);
  t.lse = RowsOf(whole.lse, of_log_probs() ? begin : 0, rows);
  if (of_log_probs()) t.log_probs = RowsOf(whole.log_probs, begin, rows);
  if (Has(kStatistics)) {
    t.statistics = RowsOf(whole.statistics, 0, rows);
    t.all_statistics.shape = whole.all_statistics.shape.With(1, rows);  // All ranks' statistics.
  }
  return t;
}

// Adds the chunk's loss, or writes its log-probabilities, and computes lse, and together() the
// gradient.
void LinearCrossEntropyOp::BindLoss(const Binder& binder, const Tensors& chunk,
                                    std::vector<Call>& calls) const {
  if (!divided()) {
    calls.push_back(
        binder.Kernel(CrossEntropyForwardArgs{.logits = chunk.logits,
                                              .targets = chunk.targets,
                                              .lse = chunk.lse,
                                              .state = binder.step_state(),
                                              .slice = division_.slice,
                                              .log_probs = chunk.log_probs,
                                              .dlogits = together() ? chunk.dlogits : Tensor{}}));
    return;
  }
  Collective& group = binder.collective(division_.axes);
  calls.push_back(binder.Kernel(CrossEntropyStatisticsArgs{.logits = chunk.logits,
                                                           .targets = chunk.targets,
                                                           .slice = division_.slice,
                                                           .statistics = chunk.statistics}));
  calls.push_back([&group, mine = chunk.statistics, all = chunk.all_statistics](Exec&) {
    group.AllGather(mine, all);
  });
  // Each rank adds its share of the rows.
  const int64_t rows = chunk.targets.elements();
  const int64_t begin = rows * group.rank() / group.size();
  const int64_t end = rows * (group.rank() + 1) / group.size();
  calls.push_back(binder.Kernel(CrossEntropyCombineArgs{.statistics = chunk.all_statistics,
                                                        .targets = chunk.targets,
                                                        .loss_begin = begin,
                                                        .loss_rows = end - begin,
                                                        .lse = chunk.lse,
                                                        .state = binder.step_state(),
                                                        .log_probs = chunk.log_probs}));
}

Call LinearCrossEntropyOp::Bind(const Binder& binder, const Instance& instance) const {
  const Tensors whole = TensorsOf(binder, instance);
  const bool gradient = IsGradient(role_);
  Collective* const group = divided() ? &binder.collective(division_.axes) : nullptr;
  std::vector<Call> calls;
  if (divided()) {
    calls.push_back([group, mine = binder.tensor(instance.inputs[kX]), all = whole.x](Exec&) {
      group->AllGather(mine, all);
    });
  }
  ForEachChunk([&](int64_t begin, int64_t rows) {
    const Tensors t = ChunkOf(whole, begin, rows);
    calls.push_back(BindProduct(
        binder, {.role = ProductRole::kForward, .a = t.x, .b = t.weight, .out = t.logits}));
    if (!given_lse()) BindLoss(binder, t, calls);
    if (!gradient) return;
    if (!together()) {
      calls.push_back(binder.Kernel(CrossEntropyBackwardArgs{.logits = t.logits,
                                                             .targets = t.targets,
                                                             .lse = t.lse,
                                                             .state = binder.step_state(),
                                                             .dlogits = t.dlogits,
                                                             .slice = division_.slice,
                                                             .dlog_probs = t.log_probs}));
    }
    if (wanted_.weight) {
      const Value dw = instance.outputs[At(kDweight)];
      calls.push_back(BindProduct(binder, {.role = ProductRole::kWeightGradient,
                                           .a = t.dlogits,
                                           .b = t.x,
                                           .out = binder.tensor(dw),
                                           .write = begin == 0 ? binder.write(dw) : Write::kAdd}));
    }
    if (wanted_.x) {
      calls.push_back(BindProduct(
          binder,
          {.role = ProductRole::kInputGradient, .a = t.dlogits, .b = t.weight, .out = t.dx}));
    }
  });
  if (divided() && Has(kDx)) {
    calls.push_back([group, all = whole.dx, mine = binder.tensor(instance.outputs[At(kDx)])](
                        Exec&) { group->ReduceScatterSum(all, mine); });
  }
  return InOrder(std::move(calls));
}

// The dtype of the role's logits.
DType LogitsOf(const Precision& precision, LossRole role) {
  const bool of_loss = role == LossRole::kLoss || role == LossRole::kGradient;
  return of_loss ? precision.logits : precision.product(kHeadForward).result;
}

// Records an instance of the role. Returns its outputs.
std::vector<Value> Emit(Recorder& recorder, LossRole role, const Division& division,
                        const Wanted& wanted, const std::vector<Value>& inputs) {
  using Op = LinearCrossEntropyOp;
  const Value of_weight = inputs[Op::kWeight];
  const ValueInfo x = recorder.info(inputs[Op::kX]), weight = recorder.info(of_weight);
  const DType statistic = recorder.precision().statistic;
  FormatOf(recorder, kHeadForward, inputs[Op::kX], of_weight);  // CHECKs the operands.
  const DType logits = LogitsOf(recorder.precision(), role);
  const DType dlogits = recorder.precision().product(kHeadInputGradient).a.dtype;
  const int64_t chunk = division.chunk, columns = weight.shape[0];
  const int64_t ranks = recorder.mesh().size(division.axes);
  const auto op = std::make_shared<LinearCrossEntropyOp>(role, division, wanted, dlogits != logits);
  std::vector<Recorder::Output> outputs;
  if (op->Has(Op::kDx)) outputs.push_back({.shape = x.shape, .dtype = x.dtype, .name = "dx"});
  if (op->Has(Op::kDweight)) {
    outputs.push_back(Recorder::Output::Into(recorder.Gradient(of_weight)));
  }
  if (op->Has(Op::kTargetLogProbs)) {
    outputs.push_back({.shape = {division.rows}, .dtype = statistic, .name = "log_probs"});
  }
  const auto memory = [&](Op::Output output, const char* name, const Shape& shape, DType dtype) {
    if (op->Has(output)) outputs.push_back(Recorder::Output::Memory(name, shape, dtype));
  };
  memory(Op::kLogits, "logits", {chunk, columns}, logits);
  memory(Op::kLse, "lse", {op->Has(Op::kTargetLogProbs) ? division.rows : chunk}, statistic);
  memory(Op::kAllX, "gathered", {division.rows, x.shape[1]}, x.dtype);
  memory(Op::kStatistics, "statistics", {chunk, 3}, statistic);
  memory(Op::kAllStatistics, "all_statistics", {ranks, chunk, 3}, statistic);
  memory(Op::kDlogits, "dlogits", {chunk, columns}, dlogits);
  return recorder.Emit(op, inputs, outputs);
}

std::vector<Value> LinearCrossEntropyOp::Backward(Recorder& recorder, const Instance& instance,
                                                  std::span<const Value> output_grads) const {
  CHECK(!IsGradient(role_)) << name() << " has no backward";
  const Wanted wanted{.x = recorder.info(instance.inputs[kX]).differentiable,
                      .weight = recorder.IsTrainable(instance.inputs[kWeight])};
  std::vector<Value> inputs = instance.inputs;
  LossRole role = LossRole::kGradient;
  if (of_log_probs()) {
    role = LossRole::kLogProbsGradient;
    inputs.push_back(instance.outputs[At(kLse)]);
    inputs.push_back(output_grads[At(kTargetLogProbs)]);
  }
  const std::vector<Value> grads = Emit(recorder, role, division_, wanted, inputs);
  return {wanted.x ? grads[kDx] : Value{}, {}, {}};
}

// Of the roles of a loss of targets, or of their log-probabilities.
Division DivisionOf(const Recorder& recorder, LossRole role, const std::vector<Value>& inputs,
                    AxisSet axes) {
  using Op = LinearCrossEntropyOp;
  const Value x = inputs[Op::kX], weight = inputs[Op::kWeight], targets = inputs[Op::kTargets];
  const ValueInfo info = recorder.info(x), w = recorder.info(weight), t = recorder.info(targets);
  const Mesh& mesh = recorder.mesh();
  axes = axes & mesh.active();
  const int64_t rows = info.shape[0] * mesh.size(axes);
  CHECK(info.shape.rank() == 2 && w.shape.rank() == 2 && info.shape[1] == w.shape[1] &&
        t.dtype == DType::kI32 && t.shape == Shape({rows}))
      << "linear_cross_entropy: " << info << " with weight " << w << " against " << t << " of "
      << mesh.size(axes) << " ranks";
  CHECK((axes - info.varying).empty())
      << "gradients of " << info << " do not vary along " << axes << ", over which it is sent";
  const int64_t columns = w.shape[0];
  const int64_t row_bytes = columns * int64_t(SizeOf(LogitsOf(recorder.precision(), role)));
  const ParameterSpec& spec = recorder.program().storage(weight).parameters.front();
  return {.axes = axes,
          .slice = SliceOf(spec, mesh.coordinate(axes) * columns, columns),
          .rows = rows,
          .chunk = ChunkRows(rows, row_bytes, recorder.program().logits_bytes)};
}

}  // namespace

void LinearCrossEntropy(Recorder& recorder, Value x, Value weight, Value targets, AxisSet axes) {
  const std::vector<Value> inputs = {x, weight, targets};
  recorder.set_when(When::kValidation);
  Emit(recorder, LossRole::kLoss, DivisionOf(recorder, LossRole::kLoss, inputs, axes), {}, inputs);
  recorder.set_when(When::kAlways);
}

Value LinearLogProbs(Recorder& recorder, Value x, Value weight, Value targets, AxisSet axes) {
  constexpr LossRole kRole = LossRole::kLogProbs;
  const std::vector<Value> inputs = {x, weight, targets};
  return Emit(recorder, kRole, DivisionOf(recorder, kRole, inputs, axes), {}, inputs)[0];
}

}  // namespace trainyard::ops
