// Attention over sequences that context ranks divide (zig-zag: kernels/device/sequence_part.h).
//
// Each rank keeps its queries and works through the keys and values of all ranks. In turn t it
// works on those of the rank t places before it, in the parts that context_parts.h finds.
//
// In a ring (Liu et al. 2023, arXiv:2310.01889) keys and values travel round: while a rank works on
// some, it already sends them to the next rank. In backward their gradients travel with them, and
// reach their owner last. Otherwise all keys and values are gathered before the first turn (Llama
// Team 2024, arXiv:2407.21783, section 3.3.2), and their gradients are summed and scattered after
// the last turn.
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/attention/attention_part.h"
#include "kernels/attention/cudnn_attention_plan.h"
#include "kernels/elementwise/copy_columns.h"
#include "kernels/elementwise/fill.h"
#include "models/program/binder.h"
#include "models/program/ops/attention_form.h"
#include "models/program/ops/context_parts.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/ring.h"

namespace trainyard::ops {
namespace {

// The base of both directions. Both have memory for keys and values, divided into places of the
// size of this rank's rows: two places that take turns in a ring, or one place for each rank.
// Backward has the same memory for the gradients.
class ContextAttentionBase : public Op {
 public:
  enum Input { kQkv };  // The first of both.
  ContextAttentionBase(const Heads& heads, const AttentionTraits& traits, const Ring& ring,
                       ContextExchange exchange)
      : heads_(heads), traits_(traits), ring_(ring), exchange_(exchange) {}
  AxisSet group() const override { return Axis::kContext; }
  std::string attributes() const override {
    return absl::StrCat(ToString(heads_), traits_.ToString(), in_ring() ? "" : " all_gather");
  }

 protected:
  bool in_ring() const { return exchange_ == ContextExchange::kRing; }
  int64_t places() const { return in_ring() ? 2 : ring_.ranks; }
  // The place in `memory` of the keys and values that a turn works on.
  Tensor Place(const Tensor& memory, int64_t turn) const {
    const int64_t i = in_ring() ? turn % 2 : ring_.before(turn);
    return Piece(memory, i, memory.shape[0] / places());
  }
  int64_t q_columns() const { return heads_.query_columns(); }
  int64_t kv_columns() const { return heads_.key_columns() + heads_.value_columns(); }
  // Views of keys and values, which lie side by side in rows of kv_columns().
  template <typename View, typename AnyTensor>
  std::pair<View, View> KeysAndValuesOf(const AnyTensor& kv) const {
    return {View(kv, 0, heads_.key_columns()),
            View(kv, heads_.key_columns(), heads_.value_columns())};
  }
  std::vector<TurnPart> PartsOfTurn(int64_t turn) const {
    return PartsOf(ring_, turn, heads_.sequence, traits_.mask,
                   traits_.documents() || traits_.drops());
  }
  double Flops(const Program& program, const Instance& instance,
               const ProductCounts& products) const {
    const int64_t sequences = program.info(instance.inputs[kQkv]).shape[0] / heads_.sequence;
    return double(sequences) * PairsOn(ring_, heads_.sequence, traits_.mask) *
           products.FlopsPerPair(heads_);
  }

  // What the parts of all turns keep on a GPU. Calls that differ only in sinks share the memory.
  std::optional<Kept> KeptBy(const Program& program, const Instance& instance, AttentionPass pass,
                             bool deterministic) const {
    if (!traits_.IsPlain()) return std::nullopt;
    const ValueInfo& qkv = program.info(instance.inputs[kQkv]);
    const AttentionDims dims = traits_.DimsOf(heads_);
    CudnnAttentionPlan plan{pass, qkv.shape[0] / heads_.sequence, dims, deterministic};
    std::map<decltype(plan.WorkspaceKey()), int64_t> workspaces;
    for (int64_t turn = 0; turn < ring_.ranks; ++turn) {
      for (const TurnPart& part : PartsOfTurn(turn)) {
        if (!CudnnPartMask(qkv.dtype, dims, part.part)) continue;
        plan.part = PartRows{.queries = part.part.q_rows,
                             .keys = part.part.kv_rows,
                             .query_stride = heads_.columns(),
                             .key_stride = kv_columns()};
        if (!plan.IsUsed()) continue;
        workspaces[plan.WorkspaceKey()] = plan.WorkspaceBytes();
      }
    }
    if (workspaces.empty()) return std::nullopt;
    int64_t bytes = CudnnPartBytes(qkv.dtype, pass, plan.sequences, dims);
    for (const auto& [key, workspace] : workspaces) bytes += workspace;
    return Kept{absl::StrCat(name(), " ", ToString(heads_), traits_.ToString(), " of ",
                             plan.sequences, deterministic ? "" : " in any order"),
                size_t(bytes)};
  }

  // Copies this rank's keys and values to the place of turn 0. Also gathers those of the other
  // ranks if there is no ring.
  std::vector<Call> TakeKeysAndValues(const Binder& binder, Tensor qkv, Tensor kv) const {
    const Tensor own = Place(kv, 0);
    std::vector<Call> calls = {binder.Kernel(CopyColumnsArgs{
        .x = qkv, .x_begin = q_columns(), .y = own, .y_begin = 0, .columns = kv_columns()})};
    if (!in_ring()) {
      calls.push_back(
          [&group = binder.collective(group()), own, kv](Exec&) { group.AllGather(own, kv); });
    }
    return calls;
  }
  // The communication of keys and values, by the size of their memory.
  std::vector<Communication> KeysAndValues(const Program& program, Value kv) const {
    const int64_t bytes = int64_t(program.info(kv).bytes());
    if (in_ring()) return Exchanges(ring_.ranks - 1, bytes / places());
    return {CallsOf(CollectiveOp::kAllGather, 1, bytes, int(ring_.ranks))};
  }
  // In a ring, sends the keys and values of a turn to the next rank while `part` works on them.
  Call WhileShifting(const Binder& binder, Tensor kv, int64_t turn, Call part) const {
    if (!in_ring() || turn + 1 == ring_.ranks) return part;
    return WhileExchanging(binder.collective(group()),
                           {Place(kv, turn), ring_.next(), Place(kv, turn + 1), ring_.previous()},
                           std::move(part));
  }

  const Heads heads_;
  const AttentionTraits traits_;
  const Ring ring_;
  const ContextExchange exchange_;
};

// The values of the form come last. dq, keys and values and their gradients are memory. There is a
// gradient of sinks if there are any.
class ContextAttentionBackwardOp final : public ContextAttentionBase {
 public:
  enum Input { kQkv, kOut, kLse, kDout, kForm };
  enum Output { kDqkv, kDq, kKv, kDkv, kDsinks, kOutputs };
  ContextAttentionBackwardOp(const ContextAttentionBase& forward, bool deterministic)
      : ContextAttentionBase(forward), deterministic_(deterministic) {}
  absl::string_view name() const override { return "context_attention_backward"; }
  std::optional<OperandCounts> operand_counts() const override {
    return OperandCounts{.inputs = kForm + traits_.num_values(),
                         .outputs = traits_.sinks ? kOutputs : kDsinks};
  }
  std::string attributes() const override {
    return absl::StrCat(ContextAttentionBase::attributes(), deterministic_ ? "" : " in any order");
  }
  std::optional<Kept> KeptOnGpu(const Program& program, const Instance& instance) const override {
    return KeptBy(program, instance, AttentionPass::kBackward, deterministic_);
  }
  // As in attention_backward: computing the scores again is not counted.
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = Flops(program, instance, {.keys = 2, .values = 2});
    return cost;
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance& instance) const override {
    std::vector<Communication> calls = KeysAndValues(program, instance.outputs[kKv]);
    const int64_t bytes = int64_t(program.info(instance.outputs[kDkv]).bytes()),
                  ranks = ring_.ranks;
    calls.push_back(in_ring()
                        ? CallsOf(CollectiveOp::kSendReceive, ranks, bytes / places(), int(ranks))
                        : CallsOf(CollectiveOp::kReduceScatterSum, 1, bytes, int(ranks)));
    return calls;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto in = [&](int i) { return binder.tensor(instance.inputs[size_t(i)]); };
    const auto out = [&](int i) { return binder.tensor(instance.outputs[size_t(i)]); };
    Collective& collective = binder.collective(group());
    const Tensor qkv = in(kQkv), dqkv = out(kDqkv), dq = out(kDq), kv = out(kKv), dkv = out(kDkv);
    std::vector<Call> calls = TakeKeysAndValues(binder, qkv, kv);
    // A turn may leave out half of another rank's rows, so their gradients must be zero first.
    if (!in_ring()) calls.push_back(binder.Kernel(FillArgs{.y = dkv, .value = 0}));
    for (int64_t turn = 0; turn < ring_.ranks; ++turn) {
      std::vector<Call> parts;
      for (const TurnPart& part : PartsOfTurn(turn)) {
        parts.push_back(BindPart(binder, instance, turn, part));
      }
      calls.push_back(WhileShifting(binder, kv, turn, InOrder(std::move(parts))));
      if (!in_ring()) continue;
      // After the last turn the gradients travel one more place, to their owner.
      calls.push_back(
          [&collective, from = Place(dkv, turn), to = Place(dkv, turn + 1), ring = ring_](Exec&) {
            collective.SendReceive(from, ring.next(), to, ring.previous());
          });
    }
    const Tensor own = Place(dkv, ring_.ranks);
    if (!in_ring()) {
      calls.push_back([&collective, dkv, own](Exec&) { collective.ReduceScatterSum(dkv, own); });
    }
    calls.push_back(binder.Kernel(
        CopyColumnsArgs{.x = dq, .x_begin = 0, .y = dqkv, .y_begin = 0, .columns = q_columns()}));
    calls.push_back(binder.Kernel(CopyColumnsArgs{
        .x = own, .x_begin = 0, .y = dqkv, .y_begin = q_columns(), .columns = kv_columns()}));
    return InOrder(std::move(calls));
  }

 private:
  Call BindPart(const Binder& binder, const Instance& instance, int64_t turn,
                const TurnPart& turn_part) const {
    const auto in = [&](int i) { return binder.tensor(instance.inputs[size_t(i)]); };
    const auto out = [&](int i) { return binder.tensor(instance.outputs[size_t(i)]); };
    const FormTensors form(binder, traits_, std::span(instance.inputs).subspan(kForm));
    const auto [keys, values] =
        KeysAndValuesOf<ConstMatrixView>(ConstTensor(Place(out(kKv), turn)));
    const auto [dkeys, dvalues] = KeysAndValuesOf<MatrixView>(Place(out(kDkv), turn));
    const Write write = turn_part.first ? Write::kOverwrite : Write::kAdd;
    AttentionPartBackwardArgs args{.q = {ConstTensor(in(kQkv)), 0, q_columns()},
                                   .k = keys,
                                   .v = values,
                                   .out = in(kOut),
                                   .lse = in(kLse),
                                   .dout = in(kDout),
                                   .dims = traits_.DimsOf(heads_),
                                   .part = turn_part.part,
                                   .dq = out(kDq),
                                   .dk = dkeys,
                                   .dv = dvalues,
                                   .write_dq = write,
                                   .write_dkv = in_ring() ? write : Write::kAdd,
                                   .deterministic = deterministic_,
                                   .document_begins = form.begins,
                                   .document_ends = form.ends,
                                   .samples = form.samples,
                                   .state = binder.step_state(),
                                   .dropout = traits_.dropout};
    if (traits_.sinks && turn_part.first) {
      args.sinks = form.sinks;
      args.dsinks = out(kDsinks);
      // The first of the first parts overwrites or adds as the binder says, and the other parts
      // add.
      args.write_dsinks =
          turn_part.part.q_begin == 0 ? binder.write(instance.outputs[kDsinks]) : Write::kAdd;
    }
    return binder.Kernel(args);
  }

  const bool deterministic_;
};

// The sum of the parts, and keys and values, are memory.
class ContextAttentionOp final : public ContextAttentionBase {
 public:
  enum Input { kQkv, kForm };  // The values of the form come last, sinks first.
  enum Output { kOut, kLse, kSum, kKv, kOutputs };
  using ContextAttentionBase::ContextAttentionBase;
  absl::string_view name() const override { return "context_attention"; }
  std::optional<OperandCounts> operand_counts() const override {
    return OperandCounts{.inputs = kForm + traits_.num_values(), .outputs = kOutputs};
  }
  std::optional<Kept> KeptOnGpu(const Program& program, const Instance& instance) const override {
    return KeptBy(program, instance, AttentionPass::kForward, /*deterministic=*/true);
  }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = Flops(program, instance, {.keys = 1, .values = 1});
    return cost;
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance& instance) const override {
    return KeysAndValues(program, instance.outputs[kKv]);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto out = [&](int i) { return binder.tensor(instance.outputs[size_t(i)]); };
    const Tensor qkv = binder.tensor(instance.inputs[kQkv]), lse = out(kLse);
    const Tensor sum = out(kSum), kv = out(kKv);
    std::vector<Call> calls = TakeKeysAndValues(binder, qkv, kv);
    const FormTensors form(binder, traits_, std::span(instance.inputs).subspan(kForm));
    for (int64_t turn = 0; turn < ring_.ranks; ++turn) {
      std::vector<Call> parts;
      const auto [keys, values] = KeysAndValuesOf<ConstMatrixView>(ConstTensor(Place(kv, turn)));
      for (const TurnPart& part : PartsOfTurn(turn)) {
        parts.push_back(binder.Kernel(
            AttentionPartForwardArgs{.q = {ConstTensor(qkv), 0, q_columns()},
                                     .k = keys,
                                     .v = values,
                                     .dims = traits_.DimsOf(heads_),
                                     .part = part.part,
                                     .out = sum,
                                     .lse = lse,
                                     .write = part.first ? Write::kOverwrite : Write::kAdd,
                                     .sinks = part.first ? form.sinks : ConstTensor(),
                                     .document_begins = form.begins,
                                     .document_ends = form.ends,
                                     .samples = form.samples,
                                     .state = binder.step_state(),
                                     .dropout = traits_.dropout}));
      }
      calls.push_back(WhileShifting(binder, kv, turn, InOrder(std::move(parts))));
    }
    calls.push_back(binder.Kernel(CopyColumnsArgs{
        .x = sum, .x_begin = 0, .y = out(kOut), .y_begin = 0, .columns = sum.shape.back()}));
    return InOrder(std::move(calls));
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value qkv = instance.inputs[kQkv];
    const ValueInfo info = recorder.info(qkv);
    const DType sums = recorder.precision().statistic;
    std::vector<Value> inputs = {qkv, instance.outputs[kOut], instance.outputs[kLse],
                                 output_grads[kOut]};
    inputs.insert(inputs.end(), instance.inputs.begin() + kForm, instance.inputs.end());
    std::vector<Recorder::Output> outputs = {
        {.shape = info.shape, .dtype = info.dtype, .name = "dqkv"},
        Recorder::Output::Memory("dqueries", {info.shape[0], q_columns()}, sums),
        Places(info, info.dtype, "keys_values"),
        Places(info, sums, "dkeys_values")};
    if (traits_.sinks) {
      outputs.push_back(recorder.GradientOutput(instance.inputs[kForm]));
    }
    std::vector<Value> gradients(instance.inputs.size());
    gradients[kQkv] = recorder.Emit(
        std::make_shared<ContextAttentionBackwardOp>(*this, recorder.program().deterministic),
        std::move(inputs), outputs)[0];
    return gradients;
  }
  Value Record(Recorder& recorder, std::shared_ptr<const Op> op, std::vector<Value> inputs) const {
    const ValueInfo info = recorder.info(inputs[kQkv]);
    const DType sums = recorder.precision().statistic;
    const int64_t tokens = info.shape[0], columns = heads_.heads * heads_.value_dim();
    return recorder.Emit(
        std::move(op), std::move(inputs),
        {{.shape = {tokens, columns}, .dtype = info.dtype, .name = "mixed"},
         Recorder::Output::Memory("lse", {tokens / heads_.sequence, heads_.heads, heads_.sequence},
                                  sums),
         Recorder::Output::Memory("sum", {tokens, columns}, sums),
         Places(info, info.dtype, "keys_values")})[0];
  }

 private:
  Recorder::Output Places(const ValueInfo& qkv, DType dtype, const char* name) const {
    return Recorder::Output::Memory(name, {places() * qkv.shape[0], kv_columns()}, dtype);
  }
};

}  // namespace

Value ContextAttention(Recorder& recorder, Value qkv, const Heads& heads,
                       const AttentionForm& form) {
  const AttentionTraits traits(recorder, heads, form);
  const auto op = std::make_shared<ContextAttentionOp>(
      heads, traits, Ring{recorder.part().ranks, recorder.part().rank},
      recorder.program().context_exchange);
  std::vector<Value> inputs = {qkv};
  for (const Value value : ValuesOf(recorder, form, traits)) inputs.push_back(value);
  return op->Record(recorder, op, std::move(inputs));
}

}  // namespace trainyard::ops
