// Attention over sequences that context ranks share out (zig-zag: kernels/sequence_part.h).
//
// Each rank keeps its queries and works through the keys and values of all ranks: in turn t those
// of the rank t places before it. The turns are equal work on all ranks:
//   t = 0          own keys: causal, all of this rank's rows in order
//   from a lower   rank: all queries come after its first chunk and before its second
//   from a higher  rank: only the second chunk of queries comes after its two chunks, which it sees
// In a ring (Liu et al. 2023, arXiv:2310.01889) keys and values go round: while a rank works on
// some, they are already on their way to the next. In backward their gradients travel with them,
// and reach their owner last. Or all are gathered before the first turn (Llama Team 2024,
// arXiv:2407.21783, section 3.3.2), and their gradients are summed and scattered after the last.
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/attention_part.h"
#include "kernels/copy_columns.h"
#include "kernels/fill.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/ring.h"

namespace trainyard::ops {
namespace {

// What the rank's queries see of the keys that it has in a turn.
AttentionPart PartOf(const Ring& ring, int64_t turn, int64_t rows) {
  const int64_t owner = ring.before(turn), half = rows / 2;
  if (owner == ring.rank) return {0, rows, 0, rows, true};
  return owner < ring.rank ? AttentionPart{0, rows, 0, half, false}
                           : AttentionPart{half, half, 0, rows, false};
}

// Query/key pairs of one head of one sequence on this rank.
double Pairs(const Ring& ring, int64_t rows) {
  const double n = double(rows);
  return n * (n + 1) / 2 + double(ring.ranks - 1) * n * n / 2;
}

double ProductFlops(const Ring& ring, const Heads& heads, const Shape& qkv) {
  const double sequences = double(qkv[0] / heads.sequence);
  return 2 * sequences * double(heads.heads * heads.head_dim) * Pairs(ring, heads.sequence);
}

// What both directions know. Both have memory for keys and values in places of this rank's rows:
// two that take turns in a ring, else one for each rank. Backward has as many for their gradients.
class ContextAttentionBase : public Op {
 public:
  ContextAttentionBase(const Heads& heads, const Ring& ring, ContextExchange exchange)
      : heads_(heads), ring_(ring), exchange_(exchange) {}
  AxisSet group() const override { return Axis::kContext; }
  std::string attributes() const override {
    return absl::StrCat(ToString(heads_), in_ring() ? "" : " all_gather");
  }

 protected:
  bool in_ring() const { return exchange_ == ContextExchange::kRing; }
  int64_t places() const { return in_ring() ? 2 : ring_.ranks; }
  // Where what a turn works on lies in that memory.
  Tensor Place(const Tensor& memory, int64_t turn) const {
    const int64_t i = in_ring() ? turn % 2 : ring_.before(turn);
    return Piece(memory, i, memory.shape[0] / places());
  }
  int64_t q_columns() const { return heads_.heads * heads_.head_dim; }
  int64_t kv_columns() const { return 2 * heads_.kv_heads * heads_.head_dim; }

  // Into the place of turn 0, and of the others where they are gathered.
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
  // What is sent of them, by their memory.
  std::vector<Communication> KeysAndValues(const Program& program, Value kv) const {
    const int64_t bytes = int64_t(program.info(kv).bytes());
    if (in_ring()) return Exchanges(ring_.ranks - 1, bytes / places());
    return {CallsOf(CollectiveOp::kAllGather, 1, bytes, int(ring_.ranks))};
  }
  // In a ring, what a turn works on goes to the next rank meanwhile.
  Call WhileShifting(const Binder& binder, Tensor kv, int64_t turn, Call part) const {
    if (!in_ring() || turn + 1 == ring_.ranks) return part;
    return WhileExchanging(binder.collective(group()),
                           {Place(kv, turn), ring_.next(), Place(kv, turn + 1), ring_.previous()},
                           std::move(part));
  }

  const Heads heads_;
  const Ring ring_;
  const ContextExchange exchange_;
};

// Inputs: qkv, out, lse, dout. Outputs: dqkv; then memory of its own: dq, keys and values, their
// gradients.
class ContextAttentionBackwardOp final : public ContextAttentionBase {
 public:
  using ContextAttentionBase::ContextAttentionBase;
  absl::string_view name() const override { return "context_attention_backward"; }
  // As attention_backward: computing the scores again is not counted.
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = 4 * ProductFlops(ring_, heads_, program.info(instance.inputs[0]).shape);
    return cost;
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance& instance) const override {
    std::vector<Communication> calls = KeysAndValues(program, instance.outputs[2]);
    const int64_t bytes = int64_t(program.info(instance.outputs[3]).bytes()), ranks = ring_.ranks;
    calls.push_back(in_ring()
                        ? CallsOf(CollectiveOp::kSendReceive, ranks, bytes / places(), int(ranks))
                        : CallsOf(CollectiveOp::kReduceScatterSum, 1, bytes, int(ranks)));
    return calls;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto in = [&](int i) { return binder.tensor(instance.inputs[size_t(i)]); };
    const auto out = [&](int i) { return binder.tensor(instance.outputs[size_t(i)]); };
    Collective& collective = binder.collective(group());
    const Tensor qkv = in(0), dqkv = out(0), dq = out(1), kv = out(2), dkv = out(3);
    std::vector<Call> calls = TakeKeysAndValues(binder, qkv, kv);
    // A turn may leave out half of another rank's rows.
    if (!in_ring()) calls.push_back(binder.Kernel(FillArgs{.y = dkv, .value = 0}));
    for (int64_t turn = 0; turn < ring_.ranks; ++turn) {
      const Write write = turn == 0 ? Write::kOverwrite : Write::kAdd;
      Call part =
          binder.Kernel(AttentionPartBackwardArgs{.q = qkv,
                                                  .kv = Place(kv, turn),
                                                  .out = in(1),
                                                  .lse = in(2),
                                                  .dout = in(3),
                                                  .dims = DimsOf(heads_),
                                                  .part = PartOf(ring_, turn, heads_.sequence),
                                                  .dq = dq,
                                                  .dkv = Place(dkv, turn),
                                                  .write_dq = write,
                                                  .write_dkv = in_ring() ? write : Write::kAdd});
      calls.push_back(WhileShifting(binder, kv, turn, std::move(part)));
      if (!in_ring()) continue;
      // After the last turn the gradients have one more place to go: home.
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
};

// Input: qkv. Outputs: out, lse; then memory of its own: the sum of the parts, keys and values.
class ContextAttentionOp final : public ContextAttentionBase {
 public:
  using ContextAttentionBase::ContextAttentionBase;
  absl::string_view name() const override { return "context_attention"; }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = 2 * ProductFlops(ring_, heads_, program.info(instance.inputs[0]).shape);
    return cost;
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance& instance) const override {
    return KeysAndValues(program, instance.outputs[3]);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto out = [&](int i) { return binder.tensor(instance.outputs[size_t(i)]); };
    const Tensor qkv = binder.tensor(instance.inputs[0]), lse = out(1), sum = out(2), kv = out(3);
    std::vector<Call> calls = TakeKeysAndValues(binder, qkv, kv);
    for (int64_t turn = 0; turn < ring_.ranks; ++turn) {
      Call part = binder.Kernel(
          AttentionPartForwardArgs{.q = qkv,
                                   .kv = Place(kv, turn),
                                   .dims = DimsOf(heads_),
                                   .part = PartOf(ring_, turn, heads_.sequence),
                                   .out = sum,
                                   .lse = lse,
                                   .write = turn == 0 ? Write::kOverwrite : Write::kAdd});
      calls.push_back(WhileShifting(binder, kv, turn, std::move(part)));
    }
    calls.push_back(binder.Kernel(CopyColumnsArgs{
        .x = sum, .x_begin = 0, .y = out(0), .y_begin = 0, .columns = q_columns()}));
    return InOrder(std::move(calls));
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value qkv = instance.inputs[0];
    const ValueInfo info = recorder.info(qkv);
    const DType sums = recorder.precision().accumulate;
    return {recorder.Emit(std::make_shared<ContextAttentionBackwardOp>(heads_, ring_, exchange_),
                          {qkv, instance.outputs[0], instance.outputs[1], output_grads[0]},
                          {{.shape = info.shape, .dtype = info.dtype, .name = "dqkv"},
                           Recorder::Output::Memory("dqueries", {info.shape[0], q_columns()}, sums),
                           Places(info, info.dtype, "keys_values"),
                           Places(info, sums, "dkeys_values")})[0]};
  }
  Value Record(Recorder& recorder, std::shared_ptr<const Op> op, Value qkv) const {
    const ValueInfo info = recorder.info(qkv);
    const DType sums = recorder.precision().accumulate;
    const int64_t tokens = info.shape[0];
    return recorder.Emit(
        std::move(op), {qkv},
        {{.shape = {tokens, q_columns()}, .dtype = info.dtype, .name = "mixed"},
         Recorder::Output::Memory("lse", {tokens / heads_.sequence, heads_.heads, heads_.sequence},
                                  sums),
         Recorder::Output::Memory("sum", {tokens, q_columns()}, sums),
         Places(info, info.dtype, "keys_values")})[0];
  }

 private:
  Recorder::Output Places(const ValueInfo& qkv, DType dtype, const char* name) const {
    return Recorder::Output::Memory(name, {places() * qkv.shape[0], kv_columns()}, dtype);
  }
};

}  // namespace

Value ContextAttention(Recorder& recorder, Value qkv, const Heads& heads) {
  const auto op =
      std::make_shared<ContextAttentionOp>(heads, Ring{recorder.part().ranks, recorder.part().rank},
                                           recorder.program().context_exchange);
  return op->Record(recorder, op, qkv);
}

}  // namespace trainyard::ops
