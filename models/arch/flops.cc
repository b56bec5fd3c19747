#include "models/arch/flops.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/violations.h"
#include "models/arch/registry.h"
#include "models/program/op.h"

namespace trainyard {
namespace {

struct NamedConvention {
  FlopsConvention convention;
  absl::string_view name;
};
constexpr std::array<NamedConvention, 6> kConventions = {{
    {FlopsConvention::kExact, "exact"},
    {FlopsConvention::kNemo20, "nemo20"},
    {FlopsConvention::kAutoModel, "automodel"},
    {FlopsConvention::kDgxcLlama31, "dgxc-llama31"},
    {FlopsConvention::kDgxcNemotron4, "dgxc-nemotron4"},
    {FlopsConvention::kMegatron, "megatron"},
}};

Program Record(const ModelConfig& config, int64_t sequence) {
  return RecordTraining(*CreateModel(config), {.record = {.precision = Precision::BF16(),
                                                          .micro_batch = 1,
                                                          .sequence = sequence,
                                                          .mesh = {}},
                                               .adamw = {}});
}

Flops Exact(ModelConfig config, int64_t sequence) {
  // The cost does not depend on the number of learned positions, so any sequence can be counted.
  if (sequence > FactsOf(config).max_sequence) SetField(config, "max_seq", sequence);
  return CountFlops(Record(config, sequence), sequence);
}

// The formula of most published tables, which leave routers out. Every factor 6 is 2 (multiply and
// add) x 3 (forward, input gradient, weight gradient).
Flops Formula(const ModelConfig& config, int64_t sequence, bool causal) {
  const ModelFacts facts = FactsOf(config);
  const double layers = double(facts.layers), h = double(facts.sizes.hidden);
  const double heads = double(facts.sizes.heads), groups = double(facts.kv_heads);
  const double d = double(facts.sizes.head_dim), width = double(facts.sizes.mlp_width);
  const double e = facts.sizes.value_head_dim == 0 ? d : double(facts.sizes.value_head_dim);
  const double matrices = FindFamily(config.family())->gated ? 3 : 2;
  const double weights = facts.sizes.attention_weights == 0 ? h * d * (2 * heads + 2 * groups)
                                                            : double(facts.sizes.attention_weights);
  return {.qkvo = layers * 6 * weights,
          .attention = layers * (causal ? 3 : 6) * heads * (d + e) * double(sequence),
          .mlp = layers * 6 * matrices * h * width,
          .output = 6 * double(facts.vocab) * h,
          .other = {}};
}

// 12 L h^2 (1 + g/a + s/h) + 18 L f h + 6 V h: full attention. The table's rows for 405b and its
// proxies were computed with g/a = 8/64, although the model has 8/128.
Flops DgxcLlama31(const ModelConfig& config, int64_t sequence) {
  const ModelFacts facts = FactsOf(config);
  Flops flops = Formula(config, sequence, /*causal=*/false);
  if (facts.sizes.heads == 128 && facts.kv_heads == 8) {
    const double h = double(facts.sizes.hidden);
    flops.qkvo = double(facts.layers) * 12 * h * h * (1 + 8.0 / 64);
  }
  return flops;
}

// 24 L h^2 + 12 L h s + 48 L h^2 + 6 V h: without groups, and with f = 4h and two matrices for
// every model.
Flops DgxcNemotron4(const ModelConfig& config, int64_t sequence) {
  const ModelFacts facts = FactsOf(config);
  const double layers = double(facts.layers), h = double(facts.sizes.hidden);
  return {.qkvo = 24 * layers * h * h,
          .attention = 12 * layers * h * double(sequence),
          .mlp = 48 * layers * h * h,
          .output = 6 * double(facts.vocab) * h,
          .other = {}};
}

}  // namespace

absl::string_view Name(FlopsConvention convention) {
  for (const NamedConvention& known : kConventions) {
    if (known.convention == convention) return known.name;
  }
  return "?";
}

std::vector<std::string> FlopsConventionNames() {
  std::vector<std::string> names;
  for (const NamedConvention& known : kConventions) names.emplace_back(known.name);
  return names;
}

absl::StatusOr<FlopsConvention> ParseFlopsConvention(absl::string_view name) {
  for (const NamedConvention& known : kConventions) {
    if (known.name == name) return known.convention;
  }
  const std::string near = NearestName(name, FlopsConventionNames());
  return absl::InvalidArgumentError(absl::StrCat(
      "no FLOPs convention \"", name, "\"; known are ", absl::StrJoin(FlopsConventionNames(), ", "),
      near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")));
}

double Flops::total() const {
  double total = qkvo + attention + mlp + output;
  for (const auto& [label, flops] : other) total += flops;
  return total;
}

Flops CountFlops(const Program& program, int64_t tokens) {
  Flops flops;
  for (const Instance& instance : program.instances) {
    if (instance.when == When::kValidation) continue;
    const double cost = instance.op->CostOf(program, instance).flops / double(tokens);
    if (cost == 0) continue;
    const bool core = absl::StartsWith(instance.op->name(), "attention");
    double& part = core                            ? flops.attention
                   : instance.label == "attention" ? flops.qkvo
                   : instance.label == "mlp"       ? flops.mlp
                   : instance.label == "head"      ? flops.output
                                                   : flops.other[instance.label];
    part += cost;
  }
  return flops;
}

Flops FlopsPerToken(const ModelConfig& config, int64_t sequence, FlopsConvention convention) {
  CHECK(sequence >= 1 && sequence <= kMaxSequence) << "sequence " << sequence;
  switch (convention) {
    case FlopsConvention::kExact:
      return Exact(config, sequence);
    case FlopsConvention::kNemo20:
      return Formula(config, sequence, /*causal=*/false);
    case FlopsConvention::kAutoModel:
    case FlopsConvention::kMegatron:
      return Formula(config, sequence, /*causal=*/true);
    case FlopsConvention::kDgxcLlama31:
      return DgxcLlama31(config, sequence);
    case FlopsConvention::kDgxcNemotron4:
      return DgxcNemotron4(config, sequence);
  }
  return {};
}

std::vector<PairFlops> FlopsPerPair(const Program& program) {
  CHECK(program.mesh.ranks() == 1) << program.mesh.ranks() << " ranks share out the pairs";
  std::vector<PairFlops> all;
  for (const Instance& instance : program.instances) {
    const std::optional<AttentionMask> mask = instance.op->PairsCounted();
    if (!mask || instance.when == When::kValidation) continue;
    auto found = std::find_if(all.begin(), all.end(),
                              [&](const PairFlops& known) { return known.mask == *mask; });
    if (found == all.end()) found = all.insert(found, {.mask = *mask, .flops = 0});
    found->flops +=
        instance.op->CostOf(program, instance).flops /
        (double(program.micro_batch) * PairsSeen(*mask, 0, program.sequence, program.sequence));
  }
  return all;
}

double Mfu(double model_flops, double seconds, double peak_flops) {
  CHECK(seconds > 0 && peak_flops > 0) << seconds << " s, peak " << peak_flops;
  return model_flops / (seconds * peak_flops);
}

ParameterCount CountParameters(const ModelConfig& config) {
  const Program program = Record(config, 1);
  const ExpertFacts experts = FactsOf(config).experts.value_or(ExpertFacts());
  ParameterCount count{.total = program.num_parameters, .active = 0};
  for (const ParameterStorage& storage : program.storages) {
    for (const ParameterSpec& spec : storage.parameters) {
      const int64_t elements = spec.shape.elements();
      count.active += spec.stacked ? elements / experts.experts * experts.top_k : elements;
    }
  }
  return count;
}

}  // namespace trainyard
