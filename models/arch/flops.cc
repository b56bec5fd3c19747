#include "models/arch/flops.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "common/check.h"
#include "models/arch/registry.h"
#include "models/program/op.h"

namespace trainyard {

Program RecordForCounting(const ModelConfig& config, int64_t sequence) {
  return RecordTraining(*CreateModel(config), {.record = {.precision = Precision::BF16(),
                                                          .micro_batch = 1,
                                                          .sequence = sequence,
                                                          .mesh = {}},
                                               .optimizer = {}});
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

Flops FlopsPerToken(const ModelConfig& config, int64_t sequence) {
  CHECK(sequence >= 1 && sequence <= kMaxSequence) << "sequence " << sequence;
  ModelConfig counted = config;
  // The cost does not depend on the number of learned positions, so any sequence can be counted.
  if (sequence > FactsOf(config).max_sequence) SetField(counted, "max_seq", sequence);
  return CountFlops(RecordForCounting(counted, sequence), sequence);
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
  const Program program = RecordForCounting(config, 1);
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
