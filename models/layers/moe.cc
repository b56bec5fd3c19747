#include "models/layers/moe.h"

#include "models/layers/low_rank.h"
#include "models/program/ops/model_load.h"
#include "models/program/ops/ops.h"

namespace trainyard {
namespace {

ParameterSpec Matrix(const std::string& name, const Shape& shape, Init init) {
  return {.name = name + ".weight", .shape = shape, .init = init, .decay = true};
}

ParameterSpec Experts(const std::string& name, const Shape& shape, Init init) {
  return {.name = name + ".weight", .shape = shape, .init = init, .decay = true, .stacked = true};
}

// The matrices of the first product: gate and up, or up alone.
std::vector<std::string> FirstNames(const MoeForm& form) {
  if (!IsGated(form.activation)) return {form.up_proj};
  return {form.gate_proj, form.up_proj};
}

// What `transformers` calls the experts' matrices in memory, and so PEFT their adapters.
const char* FirstAdapted(const MoeForm& form) {
  return IsGated(form.activation) ? "gate_up_proj" : "up_proj";
}
constexpr char kSecondAdapted[] = "down_proj";

ParameterSpec ExpertBias(const std::string& name, int64_t experts, int64_t width) {
  return {.name = name + ".bias", .shape = {experts, width}, .stacked = true};
}

RouterOptions RouterOf(const MoeConfig& c) {
  return {.scoring = c.router,
          .top_k = c.top_k,
          .groups = c.groups,
          .top_groups = c.topk_groups,
          .normalize = c.norm_topk,
          .scale = c.routed_scaling,
          .choice = c.fake_balanced ? RouterChoice::kRoundRobin : RouterChoice::kBest};
}

}  // namespace

Moe::Moe(const std::string& name, const MoeConfig& c, int64_t width, const MoeInit& init,
         const MoeForm& form)
    : config_(c),
      form_(form),
      gate_(Matrix(name + "." + form.gate, {c.experts, width}, init.in)),
      gate_bias_{.name = name + "." + form.gate + ".bias", .shape = {c.experts}},
      choice_bias_{.name = name + "." + form.gate + ".e_score_correction_bias",
                   .shape = {c.experts},
                   .unrounded = true,
                   .state = StateRule::BalanceBias(c.bias_update_rate)},
      latent_in_(Matrix(name + "." + form.latent_in, {c.latent, width}, init.in)),
      latent_out_(Matrix(name + "." + form.latent_out, {width, c.latent}, init.out)),
      down_bias_(ExpertBias(name + ".experts.*." + form.down_proj, c.experts, width)) {
  CHECK(form.activation == Activation::kSwiGlu || form.activation == Activation::kSquaredRelu)
      << name << ": experts of another activation";
  const std::string experts = name + ".experts.*.", shared = name + ".shared_experts.";
  const int64_t inner = c.latent > 0 ? c.latent : width;
  std::vector<LinearPart> shared_up;
  for (const std::string& matrix : FirstNames(form)) {
    gate_up_.push_back(Experts(experts + matrix, {c.experts, c.expert_ffn, inner}, init.in));
    gate_up_.back().adapted_as = experts + FirstAdapted(form);
    gate_up_bias_.push_back(ExpertBias(experts + matrix, c.experts, c.expert_ffn));
    shared_up.push_back({shared + matrix, c.shared_ffn});
  }
  down_ = Experts(experts + form.down_proj, {c.experts, inner, c.expert_ffn},
                  c.latent > 0 ? init.in : init.out);
  down_.adapted_as = experts + kSecondAdapted;
  if (c.shared_ffn == 0) return;
  CHECK(!form.bias && form.swiglu_limit == 0) << name << ": shared experts of another form";
  shared_.emplace(
      form.activation, ColumnLinear(shared_up, width, /*bias=*/false, init.in),
      RowLinear(
          {.name = shared + form.down_proj, .in = c.shared_ffn, .out = width, .init = init.out}));
}

void Moe::Balance(Recorder& recorder, Value logits, Value experts, Value& load) const {
  if (config_.aux_loss_scope == BalanceScope::kModel) {
    load = ops::AddLoad(recorder, logits, experts, load,
                        {.scoring = config_.router, .coefficient = config_.aux_loss});
    return;
  }
  const bool sequence = config_.aux_loss_scope == BalanceScope::kSequence;
  ops::LoadBalance(recorder, logits, experts,
                   {.scoring = config_.router,
                    .coefficient = config_.aux_loss,
                    .scope = sequence ? AuxLossScope::kSequence : AuxLossScope::kBatch});
}

Value Moe::operator()(Recorder& recorder, Value x, Value& load) const {
  recorder.set_label("mlp");
  const Value gate = recorder.Parameter(gate_);
  const Value gate_bias = form_.bias ? recorder.Parameter(gate_bias_) : Value{};
  const Value logits = ops::Linear(recorder, ProductKind::kRouter, x, gate, gate_bias);
  const Value bias = config_.expert_bias ? recorder.Parameter(choice_bias_) : Value{};
  const ops::Routing routing = ops::Router(recorder, logits, bias, RouterOf(config_));
  if (config_.aux_loss > 0 && recorder.program().training) {
    Balance(recorder, logits, routing.experts, load);
  }
  const auto divided = [&](ParameterSpec spec) {
    spec.shard = Shard::Rows(recorder.mesh().expert_axes);
    return spec;
  };
  const auto all = [&](std::vector<ParameterSpec> specs) {
    for (ParameterSpec& spec : specs) spec = divided(spec);
    return specs;
  };
  const bool latent = config_.latent > 0;
  ops::ExpertMlpInputs inputs = {.x = latent ? AdaptedLinear(recorder, x, latent_in_) : x,
                                 .experts = routing.experts,
                                 .weights = routing.weights,
                                 .gate_up = ops::WeightOfExperts(recorder, all(gate_up_)),
                                 .down = ops::WeightOfExperts(recorder, {divided(down_)}),
                                 .gated = IsGated(form_.activation),
                                 .swiglu_limit = form_.swiglu_limit,
                                 .first_adapter = AdapterOfExperts(recorder, all(gate_up_)),
                                 .second_adapter = AdapterOfExperts(recorder, all({down_})),
                                 .adapter_scale = recorder.adapter().scale};
  if (form_.bias) {
    inputs.gate_up_bias = recorder.Parameters(all(gate_up_bias_));
    inputs.down_bias = recorder.Parameter(divided(down_bias_));
  }
  Value y = ops::ExpertMlp(recorder, inputs);
  if (latent) y = AdaptedLinear(recorder, y, latent_out_);
  return shared_ ? ops::Add(recorder, y, (*shared_)(recorder, x)) : y;
}

}  // namespace trainyard
