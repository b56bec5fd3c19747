#include "models/layers/moe.h"

#include "models/program/ops/ops.h"

namespace trainyard {
namespace {

ParameterSpec Experts(const std::string& name, const Shape& shape, Init init) {
  return {.name = name + ".weight", .shape = shape, .init = init, .decay = true, .stacked = true};
}

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
      gate_{.name = name + "." + form.gate + ".weight",
            .shape = {c.experts, width},
            .init = init.in,
            .decay = true},
      gate_bias_{.name = name + "." + form.gate + ".bias", .shape = {c.experts}},
      choice_bias_{.name = name + "." + form.gate + ".e_score_correction_bias",
                   .shape = {c.experts},
                   .balance_rate = c.bias_update_rate},
      gate_up_{
          Experts(name + ".experts.*." + form.gate_proj, {c.experts, c.expert_ffn, width}, init.in),
          Experts(name + ".experts.*." + form.up_proj, {c.experts, c.expert_ffn, width}, init.in)},
      down_(Experts(name + ".experts.*." + form.down_proj, {c.experts, width, c.expert_ffn},
                    init.out)),
      gate_up_bias_{ExpertBias(name + ".experts.*." + form.gate_proj, c.experts, c.expert_ffn),
                    ExpertBias(name + ".experts.*." + form.up_proj, c.experts, c.expert_ffn)},
      down_bias_(ExpertBias(name + ".experts.*." + form.down_proj, c.experts, width)) {
  if (c.shared_ffn == 0) return;
  CHECK(!form.bias && form.swiglu_limit == 0) << name << ": shared experts of another form";
  const std::string shared = name + ".shared_experts";
  shared_.emplace(
      Activation::kSwiGlu,
      ColumnLinear({{shared + ".gate_proj", c.shared_ffn}, {shared + ".up_proj", c.shared_ffn}},
                   width, /*bias=*/false, init.in),
      RowLinear(
          {.name = shared + ".down_proj", .in = c.shared_ffn, .out = width, .init = init.out}));
}

Value Moe::operator()(Recorder& recorder, Value x) const {
  recorder.set_label("mlp");
  const Value gate = recorder.Parameter(gate_);
  const Value gate_bias = form_.bias ? recorder.Parameter(gate_bias_) : Value{};
  const Value logits = ops::Logits(recorder, ProductKind::kRouter, x, gate, gate_bias);
  const Value bias = config_.expert_bias ? recorder.Parameter(choice_bias_) : Value{};
  const ops::Routing routing = ops::Router(recorder, logits, bias, RouterOf(config_));
  if (config_.aux_loss > 0 && recorder.program().training) {
    ops::LoadBalance(recorder, logits, routing.experts,
                     {.scoring = config_.router,
                      .coefficient = config_.aux_loss,
                      .scope = config_.aux_loss_scope});
  }
  const auto divided = [&](ParameterSpec spec) {
    spec.shard = Shard::Rows(recorder.mesh().expert_axes);
    return spec;
  };
  ops::ExpertMlpInputs inputs = {
      .x = x,
      .experts = routing.experts,
      .weights = routing.weights,
      .gate_up = recorder.Parameters({divided(gate_up_[0]), divided(gate_up_[1])}),
      .down = recorder.Parameter(divided(down_)),
      .swiglu_limit = form_.swiglu_limit};
  if (form_.bias) {
    inputs.gate_up_bias =
        recorder.Parameters({divided(gate_up_bias_[0]), divided(gate_up_bias_[1])});
    inputs.down_bias = recorder.Parameter(divided(down_bias_));
  }
  const Value y = ops::ExpertMlp(recorder, inputs);
  return shared_ ? ops::Add(recorder, y, (*shared_)(recorder, x)) : y;
}

}  // namespace trainyard
