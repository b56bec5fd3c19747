// Attention over sequences that context ranks share out (zig-zag: kernels/sequence_part.h),
// exchanged in a ring (Liu et al. 2023, arXiv:2310.01889).
//
// Each rank keeps its queries. Keys and values go round: in turn t a rank works on those of the
// rank t places before it, while they are already on their way to the next. In backward their
// gradients travel with them, and reach their owner last. The turns are equal work on all ranks:
//   t = 0          own keys: causal, all of this rank's rows in order
//   from a lower   rank: all queries come after its first chunk and before its second
//   from a higher  rank: only the second chunk of queries comes after its two chunks, which it sees
#include <utility>

#include "kernels/attention_part.h"
#include "kernels/copy_columns.h"
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

// Runs while `data` goes to the next rank and `received` comes from the one before.
Call WhileShifting(Collective& group, const Ring& ring, Tensor data, Tensor received, Call call) {
  return WhileExchanging(group, {data, ring.next(), received, ring.previous()}, std::move(call));
}

Call Shift(Collective& collective, const Ring& ring, Tensor data, Tensor received) {
  return [&collective, ring, data, received](Exec&) {
    collective.SendReceive(data, ring.next(), received, ring.previous());
  };
}

// What both directions know.
class ContextAttentionBase : public Op {
 public:
  ContextAttentionBase(const Heads& heads, const Ring& ring) : heads_(heads), ring_(ring) {}
  AxisSet group() const override { return Axis::kContext; }

 protected:
  int64_t q_columns() const { return heads_.heads * heads_.head_dim; }
  int64_t kv_columns() const { return 2 * heads_.kv_heads * heads_.head_dim; }
  Call TakeKeysAndValues(const Binder& binder, Tensor qkv, Tensor kv) const {
    return binder.Kernel(CopyColumnsArgs{
        .x = qkv, .x_begin = q_columns(), .y = kv, .y_begin = 0, .columns = kv_columns()});
  }

  const Heads heads_;
  const Ring ring_;
};

// Inputs: qkv, out, lse, dout. Outputs: dqkv; then memory of its own: dq, two of keys and values,
// two of their gradients.
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
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto in = [&](int i) { return binder.tensor(instance.inputs[size_t(i)]); };
    const auto out = [&](int i) { return binder.tensor(instance.outputs[size_t(i)]); };
    Collective& collective = binder.collective(group());
    const Tensor qkv = in(0), dqkv = out(0), dq = out(1);
    Tensor kv = out(2), next_kv = out(3), dkv = out(4), next_dkv = out(5);
    std::vector<Call> calls = {TakeKeysAndValues(binder, qkv, kv)};
    for (int64_t turn = 0; turn < ring_.ranks; ++turn) {
      const Write write = turn == 0 ? Write::kOverwrite : Write::kAdd;
      Call part =
          binder.Kernel(AttentionPartBackwardArgs{.q = qkv,
                                                  .kv = kv,
                                                  .out = in(1),
                                                  .lse = in(2),
                                                  .dout = in(3),
                                                  .dims = DimsOf(heads_),
                                                  .part = PartOf(ring_, turn, heads_.sequence),
                                                  .dq = dq,
                                                  .dkv = dkv,
                                                  .write_dq = write,
                                                  .write_dkv = write});
      const bool last = turn + 1 == ring_.ranks;
      calls.push_back(last ? std::move(part)
                           : WhileShifting(collective, ring_, kv, next_kv, std::move(part)));
      // After the last turn the gradients have one more place to go: home.
      calls.push_back(Shift(collective, ring_, dkv, next_dkv));
      std::swap(kv, next_kv);
      std::swap(dkv, next_dkv);
    }
    calls.push_back(binder.Kernel(
        CopyColumnsArgs{.x = dq, .x_begin = 0, .y = dqkv, .y_begin = 0, .columns = q_columns()}));
    calls.push_back(binder.Kernel(CopyColumnsArgs{
        .x = dkv, .x_begin = 0, .y = dqkv, .y_begin = q_columns(), .columns = kv_columns()}));
    return InOrder(std::move(calls));
  }
};

// Input: qkv. Outputs: out, lse; then memory of its own: the sum of the parts, two of keys and
// values.
class ContextAttentionOp final : public ContextAttentionBase {
 public:
  using ContextAttentionBase::ContextAttentionBase;
  absl::string_view name() const override { return "context_attention"; }
  std::string attributes() const override { return ToString(heads_); }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = 2 * ProductFlops(ring_, heads_, program.info(instance.inputs[0]).shape);
    return cost;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto out = [&](int i) { return binder.tensor(instance.outputs[size_t(i)]); };
    Collective& collective = binder.collective(group());
    const Tensor qkv = binder.tensor(instance.inputs[0]), lse = out(1), sum = out(2);
    Tensor kv = out(3), next_kv = out(4);
    std::vector<Call> calls = {TakeKeysAndValues(binder, qkv, kv)};
    for (int64_t turn = 0; turn < ring_.ranks; ++turn) {
      Call part = binder.Kernel(
          AttentionPartForwardArgs{.q = qkv,
                                   .kv = kv,
                                   .dims = DimsOf(heads_),
                                   .part = PartOf(ring_, turn, heads_.sequence),
                                   .out = sum,
                                   .lse = lse,
                                   .write = turn == 0 ? Write::kOverwrite : Write::kAdd});
      const bool last = turn + 1 == ring_.ranks;
      calls.push_back(last ? std::move(part)
                           : WhileShifting(collective, ring_, kv, next_kv, std::move(part)));
      std::swap(kv, next_kv);
    }
    calls.push_back(binder.Kernel(CopyColumnsArgs{
        .x = sum, .x_begin = 0, .y = out(0), .y_begin = 0, .columns = q_columns()}));
    return InOrder(std::move(calls));
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value qkv = instance.inputs[0];
    const ValueInfo info = recorder.info(qkv);
    const int64_t tokens = info.shape[0];
    const DType sums = recorder.precision().accumulate;
    const auto memory = [](const Shape& shape, DType dtype, const char* name) {
      return Recorder::Output{
          .shape = shape, .dtype = dtype, .name = name, .differentiable = false};
    };
    const Recorder::Output kv = memory({tokens, kv_columns()}, info.dtype, "keys_values"),
                           dkv = memory({tokens, kv_columns()}, sums, "dkeys_values");
    const Value dqkv =
        recorder.Emit(std::make_shared<ContextAttentionBackwardOp>(heads_, ring_),
                      {qkv, instance.outputs[0], instance.outputs[1], output_grads[0]},
                      {{.shape = info.shape, .dtype = info.dtype, .name = "dqkv"},
                       memory({tokens, q_columns()}, sums, "dqueries"),
                       kv,
                       kv,
                       dkv,
                       dkv})[0];
    return {dqkv};
  }
};

}  // namespace

Value ContextAttention(Recorder& recorder, Value qkv, const Heads& heads) {
  const ValueInfo info = recorder.info(qkv);
  const Ring ring{recorder.part().ranks, recorder.part().rank};
  const int64_t tokens = info.shape[0], columns = heads.heads * heads.head_dim;
  const DType sums = recorder.precision().accumulate;
  const Recorder::Output kv{.shape = {tokens, 2 * heads.kv_heads * heads.head_dim},
                            .dtype = info.dtype,
                            .name = "keys_values",
                            .differentiable = false};
  return recorder.Emit(
      std::make_shared<ContextAttentionOp>(heads, ring), {qkv},
      {{.shape = {tokens, columns}, .dtype = info.dtype, .name = "mixed"},
       {.shape = {tokens / heads.sequence, heads.heads, heads.sequence},
        .dtype = sums,
        .name = "lse",
        .differentiable = false},
       {.shape = {tokens, columns}, .dtype = sums, .name = "sum", .differentiable = false},
       kv,
       kv})[0];
}

}  // namespace trainyard::ops
