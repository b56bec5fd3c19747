// trainyard flops: prints model FLOPs per token by a named convention.

#include "models/arch/flops.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/errors.h"
#include "cli/format.h"
#include "cli/verbs/verbs.h"
#include "common/status_macros.h"
#include "models/arch/registry.h"

namespace trainyard::cli {
namespace {

absl::Status Run(const Context& context) {
  ASSIGN_OR_RETURN(const Preset preset, FindPreset(context.arguments.Text("MODEL")));
  const auto convention = ParseFlopsConvention(context.arguments.Text("--convention"));
  if (!convention.ok()) {
    return UsageError(absl::StrCat("--convention: ", convention.status().message()));
  }
  const ModelFacts facts = FactsOf(preset.config);
  if (facts.vocab == 0 && *convention != FlopsConvention::kExact) {
    return UsageError(
        absl::StrCat("--convention: wanted exact, since the others are formulas of "
                     "models of text, which ",
                     preset.name, " is not; found ", Name(*convention)));
  }
  const uint64_t sequence = context.arguments.Has("--sequence")
                                ? context.arguments.Number("--sequence")
                                : uint64_t(facts.max_sequence);
  if (facts.one_sequence && sequence != uint64_t(facts.max_sequence)) {
    return UsageError(absl::StrCat("--sequence: wanted ", facts.max_sequence,
                                   ", the tokens of each sample of ", preset.name, "; found ",
                                   sequence));
  }
  const Flops flops = FlopsPerToken(preset.config, int64_t(sequence), *convention);
  nlohmann::ordered_json json = {{"model", preset.name},
                                 {"sequence", sequence},
                                 {"convention", std::string(Name(*convention))},
                                 {"flops_per_token", flops.total()},
                                 {"qkvo", flops.qkvo},
                                 {"attention", flops.attention},
                                 {"mlp", flops.mlp},
                                 {"output", flops.output}};
  std::vector<std::string> parts = {"qkvo", "attention", "mlp", "output"};
  for (const auto& [label, value] : flops.other) {
    json[label] = value;
    parts.push_back(label);
  }
  parts.push_back("flops_per_token");
  Output& output = context.output;
  if (output.format() == Format::kJson) {
    output.Line(json.dump(2));
  } else if (output.format() == Format::kJsonLines) {
    output.Line(json.dump());
  } else {
    std::vector<std::vector<std::string>> rows;
    for (const std::string& part : parts) {
      const double value = json.at(part).get<double>();
      rows.push_back({part, FormatCount(value), FormatPercent(value / flops.total())});
    }
    output.Table({{"PART"}, {"FLOPS/TOKEN", true}, {"SHARE", true}}, rows);
  }
  return absl::OkStatus();
}

}  // namespace

Verb FlopsVerb() {
  return {.name = "flops",
          .summary = "counts a model's FLOPs per trained token",
          .positionals = {{"MODEL", "a model of 'trainyard models'"}},
          .options = {NumberOption("--sequence", "S",
                                   "tokens of a sequence; default: the model's longest", "",
                                   {1, uint64_t(kMaxSequence)}),
                      TextOption("--convention", "C", absl::StrJoin(FlopsConventionNames(), ", "),
                                 "exact")},
          .offers = kFormats | kQuiet,
          .examples = {"trainyard flops llama3-8b --sequence 8192",
                       "trainyard flops llama3-70b --sequence 4096 --convention nemo20 -o json"},
          .run = Run};
}

}  // namespace trainyard::cli
