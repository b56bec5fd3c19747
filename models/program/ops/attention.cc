#include "kernels/attention/attention.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/attention/cudnn_attention_plan.h"
#include "models/program/binder.h"
#include "models/program/ops/attention_form.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// The base of both directions.
class AttentionBase : public Op {
 public:
  enum Input { kQkv };  // The first of both.
  AttentionBase(const Heads& heads, const AttentionTraits& traits)
      : heads_(heads), traits_(traits) {}
  std::optional<AttentionMask> PairsCounted() const final { return traits_.mask; }

 protected:
  double Flops(const Program& program, const Instance& instance,
               const ProductCounts& products) const {
    const int64_t s = heads_.sequence;
    const int64_t sequences = program.info(instance.inputs[kQkv]).shape[0] / s;
    return double(sequences) * PairsSeen(traits_.mask, 0, s, s) * products.FlopsPerPair(heads_);
  }
  std::optional<Kept> KeptBy(const Program& program, const Instance& instance,
                             CudnnAttentionPlan plan) const {
    if (!traits_.IsPlain()) return std::nullopt;
    const ValueInfo& qkv = program.info(instance.inputs[kQkv]);
    plan.dims = traits_.DimsOf(heads_);
    plan.sequences = qkv.shape[0] / heads_.sequence;
    const int64_t bytes = CudnnKeptBytes(qkv.dtype, plan);
    if (bytes == 0) return std::nullopt;
    // Calls that differ only in mask and sinks share the memory.
    return Kept{absl::StrCat(name(), " ", ToString(heads_), " of ", plan.sequences,
                             plan.deterministic ? "" : " in any order"),
                size_t(bytes)};
  }

  const Heads heads_;
  const AttentionTraits traits_;
};

// The values of the form come last. There is a gradient of sinks if there are any.
class AttentionBackwardOp final : public AttentionBase {
 public:
  enum Input { kQkv, kOut, kLse, kDout, kForm };
  enum Output { kDqkv, kDsinks, kOutputs };
  AttentionBackwardOp(const Heads& heads, const AttentionTraits& traits, bool deterministic)
      : AttentionBase(heads, traits), deterministic_(deterministic) {}
  absl::string_view name() const override { return "attention_backward"; }
  std::optional<OperandCounts> operand_counts() const override {
    return OperandCounts{.inputs = kForm + traits_.num_values(),
                         .outputs = traits_.sinks ? kOutputs : kDsinks};
  }
  std::string attributes() const override { return deterministic_ ? "" : "in any order"; }
  std::optional<Kept> KeptOnGpu(const Program& program, const Instance& instance) const override {
    return KeptBy(program, instance,
                  {.pass = AttentionPass::kBackward, .deterministic = deterministic_});
  }
  // The products for dP, dV, dQ and dK. Computing the scores again is not counted.
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = Flops(program, instance, {.keys = 2, .values = 2});
    return cost;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto& inputs = instance.inputs;
    const PackedViews<ConstMatrixView> qkv(ConstTensor(binder.tensor(inputs[kQkv])), heads_);
    const PackedViews<MatrixView> dqkv(binder.tensor(instance.outputs[kDqkv]), heads_);
    const FormTensors form(binder, traits_, std::span(inputs).subspan(kForm));
    AttentionBackwardArgs args{.q = qkv.q,
                               .k = qkv.k,
                               .v = qkv.v,
                               .out = binder.tensor(inputs[kOut]),
                               .lse = binder.tensor(inputs[kLse]),
                               .dout = binder.tensor(inputs[kDout]),
                               .dims = traits_.DimsOf(heads_),
                               .dq = dqkv.q,
                               .dk = dqkv.k,
                               .dv = dqkv.v,
                               .deterministic = deterministic_,
                               .sinks = form.sinks,
                               .document_begins = form.begins,
                               .document_ends = form.ends,
                               .samples = form.samples,
                               .state = binder.step_state(),
                               .dropout = traits_.dropout};
    if (traits_.sinks) {
      args.dsinks = binder.tensor(instance.outputs[kDsinks]);
      args.write_dsinks = binder.write(instance.outputs[kDsinks]);
    }
    return binder.Kernel(args);
  }

 private:
  const bool deterministic_;
};

class AttentionOp final : public AttentionBase {
 public:
  enum Input { kQkv, kForm };  // The values of the form come last, sinks first.
  enum Output { kOut, kLse, kOutputs };
  using AttentionBase::AttentionBase;
  absl::string_view name() const override { return "attention"; }
  std::optional<OperandCounts> operand_counts() const override {
    return OperandCounts{.inputs = kForm + traits_.num_values(), .outputs = kOutputs};
  }
  std::string attributes() const override {
    return absl::StrCat(ToString(heads_), traits_.ToString());
  }
  std::optional<Kept> KeptOnGpu(const Program& program, const Instance& instance) const override {
    return KeptBy(program, instance, {.pass = AttentionPass::kForward});
  }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = Flops(program, instance, {.keys = 1, .values = 1});
    return cost;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const PackedViews<ConstMatrixView> qkv(ConstTensor(binder.tensor(instance.inputs[kQkv])),
                                           heads_);
    const FormTensors form(binder, traits_, std::span(instance.inputs).subspan(kForm));
    return binder.Kernel(AttentionForwardArgs{.q = qkv.q,
                                              .k = qkv.k,
                                              .v = qkv.v,
                                              .dims = traits_.DimsOf(heads_),
                                              .out = binder.tensor(instance.outputs[kOut]),
                                              .lse = binder.tensor(instance.outputs[kLse]),
                                              .sinks = form.sinks,
                                              .document_begins = form.begins,
                                              .document_ends = form.ends,
                                              .samples = form.samples,
                                              .state = binder.step_state(),
                                              .dropout = traits_.dropout});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value qkv = instance.inputs[kQkv];
    const ValueInfo info = recorder.info(qkv);
    std::vector<Value> inputs = {qkv, instance.outputs[kOut], instance.outputs[kLse],
                                 output_grads[kOut]};
    inputs.insert(inputs.end(), instance.inputs.begin() + kForm, instance.inputs.end());
    std::vector<Recorder::Output> outputs = {
        {.shape = info.shape, .dtype = info.dtype, .name = "dqkv"}};
    if (traits_.sinks) {
      outputs.push_back(recorder.GradientOutput(instance.inputs[kForm]));
    }
    std::vector<Value> gradients(instance.inputs.size());
    gradients[kQkv] = recorder.Emit(
        std::make_shared<AttentionBackwardOp>(heads_, traits_, recorder.program().deterministic),
        std::move(inputs), outputs)[0];
    return gradients;
  }
};

// Checks the form against the heads and rows.
void CheckForm(const Recorder& recorder, const ValueInfo& qkv, const Heads& heads,
               const AttentionForm& form) {
  CHECK(qkv.shape.back() == heads.columns() && qkv.shape[0] % heads.sequence == 0)
      << "attention: " << qkv << " for " << heads.heads << " heads and " << heads.kv_heads
      << " key/value heads of " << heads.head_dim << ", values of " << heads.value_dim()
      << ", sequences of " << heads.sequence;
  Check(AttentionTraits(recorder, heads, form).DimsOf(heads));
  if (form.sinks.valid()) {
    const ValueInfo& sinks = recorder.info(form.sinks);
    CHECK(sinks.shape == Shape({heads.heads}))
        << "attention: sinks " << sinks << " for " << heads.heads << " query heads";
  }
  const auto& [begins, ends] = form.documents;
  CHECK(form.mask.causal || begins.valid() == ends.valid())
      << "attention: a full mask takes both where documents begin and where they end, or neither";
  for (const Value bounds : {begins, ends}) {
    if (!bounds.valid()) continue;
    const ValueInfo& info = recorder.info(bounds);
    CHECK(info.dtype == DType::kI32 && info.shape.elements() == qkv.shape[0])
        << "attention: documents " << info << " for i32 with one element for each of "
        << qkv.shape[0] << " rows";
  }
}

}  // namespace

std::string ToString(const Heads& heads) {
  std::string text = absl::StrCat("heads=", heads.heads, " kv_heads=", heads.kv_heads,
                                  " head_dim=", heads.head_dim, " sequence=", heads.sequence);
  if (heads.value_dim() != heads.head_dim) {
    absl::StrAppend(&text, " value_head_dim=", heads.value_dim());
  }
  return text;
}

Value Attention(Recorder& recorder, Value qkv, const Heads& heads, const AttentionForm& form) {
  const ValueInfo info = recorder.info(qkv);
  CheckForm(recorder, info, heads, form);
  if (recorder.program().cache > 0) return CachedAttention(recorder, qkv, heads, form);
  if (recorder.part().ranks > 1) return ContextAttention(recorder, qkv, heads, form);
  const int64_t tokens = info.shape[0];
  const AttentionTraits traits(recorder, heads, form);
  std::vector<Value> inputs = {qkv};
  for (const Value value : ValuesOf(recorder, form, traits)) inputs.push_back(value);
  return recorder.Emit(
      std::make_shared<AttentionOp>(heads, traits), std::move(inputs),
      {{.shape = {tokens, heads.heads * heads.value_dim()}, .dtype = info.dtype, .name = "mixed"},
       {.shape = {tokens / heads.sequence, heads.heads, heads.sequence},
        .dtype = recorder.precision().statistic,
        .name = "lse",
        .differentiable = false}})[0];
}

}  // namespace trainyard::ops
