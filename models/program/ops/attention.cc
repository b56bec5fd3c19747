#include "kernels/attention.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/cudnn_attention_plan.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// One product of the causal triangle, diagonal included, over all heads and sequences: two FLOPs
// for each of s(s+1)/2 pairs and head dim.
double TriangleFlops(const Heads& heads, const Shape& qkv) {
  const double sequences = double(qkv[0] / heads.sequence);
  const double pairs = double(heads.sequence) * double(heads.sequence + 1) / 2;
  return 2 * sequences * double(heads.heads) * double(heads.head_dim) * pairs;
}

std::optional<Op::Kept> KeptBy(const Op& op, const Heads& heads, const ValueInfo& qkv,
                               CudnnAttentionPlan plan) {
  plan.dims = DimsOf(heads);
  plan.sequences = qkv.shape[0] / heads.sequence;
  const int64_t bytes = CudnnKeptBytes(qkv.dtype, plan);
  if (bytes == 0) return std::nullopt;
  return Op::Kept{absl::StrCat(op.name(), " ", ToString(heads), " of ", plan.sequences),
                  size_t(bytes)};
}

// Inputs: qkv, out, lse, dout. Output: dqkv.
class AttentionBackwardOp final : public Op {
 public:
  AttentionBackwardOp(const Heads& heads, bool deterministic)
      : heads_(heads), deterministic_(deterministic) {}
  absl::string_view name() const override { return "attention_backward"; }
  std::string attributes() const override { return deterministic_ ? "" : "in any order"; }
  std::optional<Kept> KeptOnGpu(const Program& program, const Instance& instance) const override {
    return KeptBy(*this, heads_, program.info(instance.inputs[0]),
                  {.pass = AttentionPass::kBackward, .deterministic = deterministic_});
  }
  // dP, dV, dQ, dK; computing the scores again is not counted.
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = 4 * TriangleFlops(heads_, program.info(instance.inputs[0]).shape);
    return cost;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(AttentionBackwardArgs{.qkv = binder.tensor(instance.inputs[0]),
                                               .out = binder.tensor(instance.inputs[1]),
                                               .lse = binder.tensor(instance.inputs[2]),
                                               .dout = binder.tensor(instance.inputs[3]),
                                               .dims = DimsOf(heads_),
                                               .dqkv = binder.tensor(instance.outputs[0]),
                                               .deterministic = deterministic_});
  }

 private:
  Heads heads_;
  bool deterministic_;
};

// Input: qkv. Outputs: out, lse.
class AttentionOp final : public Op {
 public:
  explicit AttentionOp(const Heads& heads) : heads_(heads) {}
  absl::string_view name() const override { return "attention"; }
  std::string attributes() const override { return ToString(heads_); }
  std::optional<Kept> KeptOnGpu(const Program& program, const Instance& instance) const override {
    return KeptBy(*this, heads_, program.info(instance.inputs[0]),
                  {.pass = AttentionPass::kForward});
  }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = 2 * TriangleFlops(heads_, program.info(instance.inputs[0]).shape);
    return cost;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(AttentionForwardArgs{.qkv = binder.tensor(instance.inputs[0]),
                                              .dims = DimsOf(heads_),
                                              .out = binder.tensor(instance.outputs[0]),
                                              .lse = binder.tensor(instance.outputs[1])});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value qkv = instance.inputs[0];
    const ValueInfo info = recorder.info(qkv);
    return recorder.Emit(
        std::make_shared<AttentionBackwardOp>(heads_, recorder.program().deterministic),
        {qkv, instance.outputs[0], instance.outputs[1], output_grads[0]},
        {{.shape = info.shape, .dtype = info.dtype, .name = "dqkv"}});
  }

 private:
  Heads heads_;
};

}  // namespace

AttentionDims DimsOf(const Heads& heads) {
  return {.sequence = heads.sequence,
          .heads = heads.heads,
          .kv_heads = heads.kv_heads,
          .head_dim = heads.head_dim,
          .scale = 1 / std::sqrt(double(heads.head_dim))};
}

std::string ToString(const Heads& heads) {
  return absl::StrCat("heads=", heads.heads, " kv_heads=", heads.kv_heads,
                      " head_dim=", heads.head_dim, " sequence=", heads.sequence);
}

Value Attention(Recorder& recorder, Value qkv, const Heads& heads) {
  const ValueInfo info = recorder.info(qkv);
  CHECK(info.shape.back() == (heads.heads + 2 * heads.kv_heads) * heads.head_dim &&
        info.shape[0] % heads.sequence == 0)
      << "attention: " << info << " for " << heads.heads << " heads and " << heads.kv_heads
      << " key/value heads of " << heads.head_dim << ", sequences of " << heads.sequence;
  if (recorder.part().ranks > 1) return ContextAttention(recorder, qkv, heads);
  const int64_t tokens = info.shape[0];
  return recorder.Emit(
      std::make_shared<AttentionOp>(heads), {qkv},
      {{.shape = {tokens, heads.heads * heads.head_dim}, .dtype = info.dtype, .name = "mixed"},
       {.shape = {tokens / heads.sequence, heads.heads, heads.sequence},
        .dtype = recorder.precision().accumulate,
        .name = "lse",
        .differentiable = false}})[0];
}

}  // namespace trainyard::ops
