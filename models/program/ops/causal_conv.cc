// The convolution, and how it gets the rows before a part of a sequence. If context ranks divide
// sequences, each rank gathers the last rows ("tails") of all parts, and takes those of the parts
// before its own.
#include "kernels/state_space/causal_conv.h"

#include "absl/strings/str_cat.h"
#include "kernels/elementwise/copy_columns.h"
#include "kernels/elementwise/fill.h"
#include "models/program/binder.h"
#include "models/program/ops/caches.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/output_like.h"
#include "models/program/ops/ring.h"

namespace trainyard::ops {
namespace {

// The tensor's elements as rows of another length.
Tensor InRows(Tensor t, int64_t rows) {
  t.shape = {rows, t.elements() / rows};
  return t;
}

// Forward: x [T, C] to the last `count` rows of each part of `sequence` rows. Backward: the
// gradient of x, which is zero elsewhere.
class TailsOp final : public NamedOp<TailsOp> {
 public:
  enum Input { kX, kInputs };
  enum Output { kY, kOutputs };
  TailsOp(int64_t sequence, int64_t count, bool backward)
      : sequence_(sequence), count_(count), backward_(backward) {}
  absl::string_view name() const override { return backward_ ? "tails_backward" : "tails"; }
  std::string attributes() const override { return absl::StrCat("count=", count_); }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    const ValueInfo from = program.info(instance.inputs[kX]),
                    to = program.info(instance.outputs[kY]);
    return {.bytes = 2 * double(std::min(from.bytes(), to.bytes())) +
                     (backward_ ? double(to.bytes()) : 0)};
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Tensor from = binder.tensor(instance.inputs[kX]),
                 to = binder.tensor(instance.outputs[kY]);
    const Tensor& whole = backward_ ? to : from;
    const int64_t parts = whole.shape[0] / sequence_, columns = whole.shape[1];
    const int64_t begin = (sequence_ - count_) * columns;
    const Call copy = binder.Kernel(CopyColumnsArgs{.x = InRows(from, parts),
                                                    .x_begin = backward_ ? 0 : begin,
                                                    .y = InRows(to, parts),
                                                    .y_begin = backward_ ? begin : 0,
                                                    .columns = count_ * columns});
    if (!backward_) return copy;
    return InOrder({binder.Kernel(FillArgs{.y = to, .value = 0}), copy});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const ValueInfo info = recorder.info(instance.inputs[kX]);
    return recorder.Emit(std::make_shared<TailsOp>(sequence_, count_, /*backward=*/true),
                         {output_grads[kY]},
                         {{.shape = info.shape, .dtype = info.dtype, .name = "dx"}});
  }

 private:
  const int64_t sequence_, count_;
  const bool backward_;
};

// Forward: the tails of the parts of all context ranks to the tails that precede this rank's parts,
// zeros for the first part. A rank r of n has the parts r and 2n-1-r of each sequence, so part r
// follows the first part of rank r-1, and part 2n-1-r the second part of rank r+1, or for the last
// rank its own first part. Backward: the gradient of all tails.
class PrecedingTailsOp final : public NamedOp<PrecedingTailsOp> {
 public:
  enum Input { kX, kInputs };
  enum Output { kY, kOutputs };
  PrecedingTailsOp(int64_t sequences, const SequencePart& part, bool backward)
      : sequences_(sequences), part_(part), backward_(backward) {}
  absl::string_view name() const override {
    return backward_ ? "preceding_tails_backward" : "preceding_tails";
  }
  std::string attributes() const override { return absl::StrCat("sequences=", sequences_); }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Tensor from = binder.tensor(instance.inputs[kX]),
                 to = binder.tensor(instance.outputs[kY]);
    const Tensor &all = backward_ ? to : from, &own = backward_ ? from : to;
    std::vector<Call> calls;
    if (backward_ || part_.rank == 0) calls.push_back(binder.Kernel(FillArgs{.y = to, .value = 0}));
    // The tails of a sequence's two parts lie side by side.
    const int64_t columns = own.elements() / (2 * sequences_);
    const auto copy = [&](int64_t rank, bool second, bool own_second) {
      const Tensor of_rank = InRows(Piece(all, rank, all.shape[0] / part_.ranks), sequences_);
      const int64_t there = second ? columns : 0, here = own_second ? columns : 0;
      const Tensor mine = InRows(own, sequences_);
      calls.push_back(binder.Kernel(CopyColumnsArgs{.x = backward_ ? mine : of_rank,
                                                    .x_begin = backward_ ? here : there,
                                                    .y = backward_ ? of_rank : mine,
                                                    .y_begin = backward_ ? there : here,
                                                    .columns = columns}));
    };
    if (part_.rank > 0) copy(part_.rank - 1, /*second=*/false, /*own_second=*/false);
    const bool last = part_.rank + 1 == part_.ranks;
    copy(last ? part_.rank : part_.rank + 1, /*second=*/!last, /*own_second=*/true);
    return InOrder(std::move(calls));
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const ValueInfo info = recorder.info(instance.inputs[kX]);
    return recorder.Emit(std::make_shared<PrecedingTailsOp>(sequences_, part_, /*backward=*/true),
                         {output_grads[kY]},
                         {{.shape = info.shape, .dtype = info.dtype, .name = "dtails"}});
  }

 private:
  const int64_t sequences_;
  const SequencePart part_;
  const bool backward_;
};

// The rows before each part: [M (K-1), C].
Value PrecedingTails(Recorder& recorder, Value x, int64_t count) {
  const ValueInfo info = recorder.info(x);
  const int64_t sequence = RowsOfPart(recorder), parts = info.shape[0] / sequence;
  CHECK(sequence >= count) << "causal_conv: parts of " << sequence << " rows, " << count
                           << " of which the next part reads";
  const Shape shape = {parts * count, info.shape[1]};
  const Value tails =
      recorder.Emit(std::make_shared<TailsOp>(sequence, count, /*backward=*/false), {x},
                    {{.shape = shape, .dtype = info.dtype, .name = "tails"}})[0];
  return recorder.Emit(std::make_shared<PrecedingTailsOp>(parts / 2, recorder.part(),
                                                          /*backward=*/false),
                       {AllGather(recorder, tails, Axis::kContext)},
                       {{.shape = shape, .dtype = info.dtype, .name = "preceding"}})[0];
}

class CausalConvBackwardOp final : public NamedOp<CausalConvBackwardOp> {
 public:
  // The last two inputs may be missing. Without a tail, kTail is the number of the positions.
  enum Input { kDy, kX, kWeight, kBias, kTail, kPositions, kInputs };
  enum Output { kDx, kDweight, kDbias, kDtail, kOutputs };
  static constexpr size_t kOptionalInputs = 2;
  static constexpr size_t kOptionalOutputs = 1;
  CausalConvBackwardOp(int64_t sequence, bool tailed) : sequence_(sequence), tailed_(tailed) {}
  absl::string_view name() const override { return "causal_conv_backward"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    CausalConvBackwardArgs args{.dy = binder.tensor(instance.inputs[kDy]),
                                .x = binder.tensor(instance.inputs[kX]),
                                .weight = binder.tensor(instance.inputs[kWeight]),
                                .bias = binder.tensor(instance.inputs[kBias]),
                                .sequence = sequence_,
                                .dx = binder.tensor(instance.outputs[kDx]),
                                .dweight = binder.tensor(instance.outputs[kDweight]),
                                .dbias = binder.tensor(instance.outputs[kDbias]),
                                .write_dweight = binder.write(instance.outputs[kDweight]),
                                .write_dbias = binder.write(instance.outputs[kDbias])};
    if (tailed_) {
      args.tail = binder.tensor(instance.inputs[kTail]);
      args.dtail = binder.tensor(instance.outputs[kDtail]);
    }
    if (instance.inputs.size() > (tailed_ ? kPositions : kTail)) {
      args.document_positions = binder.tensor(instance.inputs.back());
    }
    return binder.Kernel(args);
  }

 private:
  const int64_t sequence_;
  const bool tailed_;
};

class CausalConvOp final : public NamedOp<CausalConvOp> {
 public:
  enum Input { kX, kWeight, kBias, kTail, kPositions, kInputs };  // As in CausalConvBackwardOp.
  enum Output { kY, kOutputs };
  static constexpr size_t kOptionalInputs = 2;
  CausalConvOp(int64_t sequence, bool tailed) : sequence_(sequence), tailed_(tailed) {}
  absl::string_view name() const override { return "causal_conv"; }
  bool is_cheap() const override { return true; }
  std::string attributes() const override { return absl::StrCat("sequence=", sequence_); }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    CausalConvForwardArgs args{.x = binder.tensor(instance.inputs[kX]),
                               .weight = binder.tensor(instance.inputs[kWeight]),
                               .bias = binder.tensor(instance.inputs[kBias]),
                               .sequence = sequence_,
                               .y = binder.tensor(instance.outputs[kY])};
    if (tailed_) args.tail = binder.tensor(instance.inputs[kTail]);
    if (instance.inputs.size() > (tailed_ ? kPositions : kTail)) {
      args.document_positions = binder.tensor(instance.inputs.back());
    }
    return binder.Kernel(args);
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const std::vector<Value>& in = instance.inputs;
    std::vector<Value> inputs = {output_grads[kY]};
    inputs.insert(inputs.end(), in.begin(), in.end());
    std::vector<Recorder::Output> outputs = {OutputLike(recorder, in[kX], "dx"),
                                             recorder.GradientOutput(in[kWeight]),
                                             recorder.GradientOutput(in[kBias])};
    if (tailed_) outputs.push_back(OutputLike(recorder, in[kTail], "dtail"));
    const std::vector<Value> grads = recorder.Emit(
        std::make_shared<CausalConvBackwardOp>(sequence_, tailed_), std::move(inputs), outputs);
    std::vector<Value> results(in.size());
    results[kX] = grads[CausalConvBackwardOp::kDx];
    if (tailed_) results[kTail] = grads[CausalConvBackwardOp::kDtail];
    return results;
  }

 private:
  const int64_t sequence_;
  const bool tailed_;
};

}  // namespace

int64_t RowsOfPart(const Recorder& recorder) {
  const SequencePart part = recorder.part();
  return part.ranks == 1 ? part.rows : part.rows / 2;
}

Value CausalConv(Recorder& recorder, Value x, Value weight, Value bias, Value positions) {
  if (recorder.program().cache > 0) return KeptConv(recorder, x, weight, bias);
  const ValueInfo info = recorder.info(x);
  std::vector<Value> inputs = {x, weight, bias};
  const bool tailed = recorder.part().ranks > 1;
  if (tailed) {
    inputs.push_back(PrecedingTails(recorder, x, recorder.info(weight).shape.back() - 1));
  }
  if (positions.valid()) inputs.push_back(positions);
  return recorder.Emit(std::make_shared<CausalConvOp>(RowsOfPart(recorder), tailed),
                       std::move(inputs),
                       {{.shape = info.shape, .dtype = info.dtype, .name = "conv"}})[0];
}

}  // namespace trainyard::ops
