#include "models/layers/moe.h"

#include "models/program/ops/ops.h"

namespace trainyard {
namespace {

ParameterSpec Experts(const std::string& name, const Shape& shape, Init init) {
  return {.name = name + ".weight", .shape = shape, .init = init, .decay = true, .stacked = true};
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

Moe::Moe(const std::string& name, const MoeConfig& c, int64_t width, const MoeInit& init)
    : config_(c),
      gate_{.name = name + ".gate.weight",
            .shape = {c.experts, width},
            .init = init.in,
            .decay = true},
      bias_{.name = name + ".gate.e_score_correction_bias",
            .shape = {c.experts},
            .balance_rate = c.bias_update_rate},
      gate_up_{Experts(name + ".experts.*.gate_proj", {c.experts, c.expert_ffn, width}, init.in),
               Experts(name + ".experts.*.up_proj", {c.experts, c.expert_ffn, width}, init.in)},
      down_(Experts(name + ".experts.*.down_proj", {c.experts, width, c.expert_ffn}, init.out)) {
  if (c.shared_ffn == 0) return;
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
  const Value logits = ops::Logits(recorder, x, recorder.Parameter(gate_));
  const Value bias = config_.expert_bias ? recorder.Parameter(bias_) : Value{};
  const ops::Routing routing = ops::Router(recorder, logits, bias, RouterOf(config_));
  if (config_.aux_loss > 0 && recorder.program().training) {
    ops::LoadBalance(recorder, logits, routing.experts,
                     {.scoring = config_.router, .coefficient = config_.aux_loss});
  }
  const auto divided = [&](ParameterSpec spec) {
    spec.shard = Shard::Rows(recorder.mesh().expert_axes);
    return spec;
  };
  const Value y = ops::ExpertMlp(
      recorder, {.x = x,
                 .experts = routing.experts,
                 .weights = routing.weights,
                 .gate_up = recorder.Parameters({divided(gate_up_[0]), divided(gate_up_[1])}),
                 .down = recorder.Parameter(divided(down_))});
  return shared_ ? ops::Add(recorder, y, (*shared_)(recorder, x)) : y;
}

}  // namespace trainyard
