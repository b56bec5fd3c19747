#include "train/config/adapter.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "models/arch/registry.h"
#include "models/model.h"
#include "train/config/fields.h"
#include "train/config/name_pattern.h"
#include "train/config/patterns.h"
#include "train/config/precision.h"

namespace trainyard {
namespace {

constexpr char kTargets[] = "adapter.lora.targets", kSaved[] = "adapter.lora.modules_to_save";

// Whether all linear layers are targets. There may be further patterns, for experts.
bool HasAllLinear(const std::vector<std::string>& targets) {
  return targets.empty() || std::count(targets.begin(), targets.end(), kAllLinear) > 0;
}

// Whether one of the patterns matches a name. Copies share the patterns.
class AnyOf {
 public:
  explicit AnyOf(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) patterns_->emplace_back(text);
  }
  bool operator()(absl::string_view name) const {
    return std::any_of(patterns_->begin(), patterns_->end(),
                       [&](const NamePattern& pattern) { return pattern.Matches(name); });
  }

 private:
  std::shared_ptr<std::vector<NamePattern>> patterns_ =
      std::make_shared<std::vector<NamePattern>>();
};

// The patterns that may choose experts: '*.down_proj' means the layers outside of them, as PEFT's
// target_modules do.
std::vector<std::string> NamingExperts(std::vector<std::string> targets) {
  std::erase_if(targets, [](const auto& text) { return !absl::StrContains(text, "experts"); });
  return targets;
}

// Returns "lm_head" for "lm_head.weight".
absl::string_view ModuleOfParameter(absl::string_view name) {
  return name.substr(0, name.rfind('.'));
}

// The modules of a model, by what the two lists may name.
struct Modules {
  std::vector<std::string> linear;   // These and the next may have an adapter.
  std::vector<std::string> experts;  // Names of all experts of a layer (TargetOf).
  std::vector<std::string> whole;    // May be trained as a whole. Experts, one tensor, may not.
};

Modules ModulesOf(const ModelConfig& model) {
  Modules modules;
  std::set<std::string> whole;
  const LowRank of_all{.rank = 1, .adapts = [](absl::string_view) { return true; }};
  for (const ParameterStorage& storage : DeclareParameters(*CreateModel(model), of_all)) {
    for (const ParameterSpec& spec : storage.parameters) {
      absl::string_view module = spec.name;
      if (absl::ConsumeSuffix(&module, kLowRankDown)) {
        (spec.stacked ? modules.experts : modules.linear).push_back(TargetOf(module));
      } else if (!spec.stacked && !IsLowRank(spec.name)) {
        whole.emplace(ModuleOfParameter(spec.name));
      }
    }
  }
  modules.whole.assign(whole.begin(), whole.end());
  return modules;
}

// What a list of patterns may match.
struct Matched {
  std::vector<std::string> names;
  std::vector<std::string> experts = {};  // That only NamingExperts can match.
  const char* what;                       // For people.
};

// Adds a violation for each pattern that matches no name. A name's last part alone, as PEFT takes
// it, gets the pattern that says the same here.
void CheckMatches(const std::vector<std::string>& patterns, const Matched& matched,
                  absl::string_view field, Violations& violations) {
  std::vector<std::string> all = matched.names;
  all.insert(all.end(), matched.experts.begin(), matched.experts.end());
  if (all.empty()) all.push_back(kAllLinear);  // The nearest legal value.
  for (size_t i = 0; i < patterns.size(); ++i) {
    const auto matches = [&](const std::string& text) {
      const AnyOf pattern({text}), of_experts(NamingExperts({text}));
      return std::any_of(matched.names.begin(), matched.names.end(), pattern) ||
             std::any_of(matched.experts.begin(), matched.experts.end(), of_experts);
    };
    if (patterns[i] == kAllLinear || matches(patterns[i])) continue;
    const std::string ending = absl::StrCat("*.", patterns[i]);
    const bool means_experts = absl::StrContains(patterns[i], "expert") && !matched.experts.empty();
    const std::vector<std::string>& near = means_experts ? matched.experts : all;
    const bool by_ending = ending.size() <= kMaxPatternBytes && matches(ending);
    violations.Add(absl::StrCat(field, "[", i, "]"),
                   absl::StrCat("a pattern that matches ", matched.what), Quoted(patterns[i]),
                   Quoted(by_ending ? ending : NearestOfNames(patterns[i], near, true)));
  }
}

// Experts' adapters have what PEFT has for them. `expert` is one of the targets.
void CheckAdapterOfExperts(const LoraConfig& lora, const std::string& expert,
                           Violations& violations) {
  if (lora.dropout > 0) {
    violations.Add("adapter.lora.dropout", absl::StrCat("0 for adapters of experts: ", expert),
                   lora.dropout, 0);
  }
  if (lora.dora) {
    violations.Add("adapter.lora.dora", absl::StrCat("false for adapters of experts: ", expert),
                   "true", "false");
  }
}

void CheckModules(const LoraConfig& lora, const ModelConfig& model, Violations& violations) {
  const Modules modules = ModulesOf(model);
  const bool all_linear = HasAllLinear(lora.targets);
  Matched targets{.names = modules.linear,
                  .experts = modules.experts,
                  .what = "a linear layer that is no head or router, or the experts of a layer"};
  if (all_linear) targets.names.clear(), targets.what = "experts, beside all-linear";
  CheckMatches(lora.targets, targets, kTargets, violations);
  CheckMatches(lora.modules_to_save, {.names = modules.whole, .what = "a module of the model"},
               kSaved, violations);
  const AnyOf target(lora.targets), saved(lora.modules_to_save);
  for (const std::string& module : modules.linear) {
    if (!saved(module) || !(all_linear || target(module))) continue;
    return violations.Add(kSaved, "modules that are no targets", Quoted(module));
  }
  const auto expert = std::find_if(modules.experts.begin(), modules.experts.end(),
                                   AnyOf(NamingExperts(lora.targets)));
  if (expert != modules.experts.end()) CheckAdapterOfExperts(lora, *expert, violations);
}

}  // namespace

bool IsBaseInNf4(const JobConfig& job) {
  return job.adapter && job.adapter->lora && job.adapter->lora->base == LoraBase::kNf4;
}

std::optional<LoraNumbers> LoraNumbersOf(const JobConfig& job) {
  if (!job.adapter || !job.adapter->lora) return std::nullopt;
  const LoraConfig& lora = *job.adapter->lora;
  LoraNumbers numbers = {
      .rank = lora.rank, .alpha = lora.alpha, .rslora = lora.rslora, .dora = lora.dora};
  if (IsBaseInNf4(job)) numbers.nf4 = RowOf(job.precision).formats.frozen;
  return numbers;
}

LowRank AdapterOf(const JobConfig& job) {
  const std::optional<LoraNumbers> numbers = LoraNumbersOf(job);
  if (!numbers) return {};
  const LoraConfig& lora = *job.adapter->lora;
  LowRank adapter{.rank = numbers->rank,
                  .scale = numbers->scale(),
                  .dropout = lora.dropout,
                  .magnitudes = numbers->dora,
                  .nf4 = numbers->nf4.has_value()};
  if (lora.targets.empty() || lora.targets == std::vector<std::string>{kAllLinear}) return adapter;
  adapter.adapts = [all_linear = HasAllLinear(lora.targets), layers = AnyOf(lora.targets),
                    experts = AnyOf(NamingExperts(lora.targets))](absl::string_view target) {
    return IsTargetOfExperts(target) ? experts(target) : all_linear || layers(target);
  };
  return adapter;
}

Recorder::IsFrozen FrozenBeside(const LoraConfig& lora) {
  return [saved = AnyOf(lora.modules_to_save)](const ParameterSpec& spec) {
    return !IsLowRank(spec.name) && (spec.stacked || !saved(ModuleOfParameter(spec.name)));
  };
}

void ValidateAdapter(const JobConfig& job, const ModelConfig* model, Violations& violations) {
  if (!job.adapter) return;
  if (!job.adapter->lora) return violations.Add("adapter.lora", "the adapter's options", "none");
  const LoraConfig& lora = *job.adapter->lora;
  if (lora.dropout > 0 && model != nullptr && FactsOf(*model).vocab == 0) {
    violations.Add("adapter.lora.dropout", "0 for a model that reads no tokens", lora.dropout, 0);
  }
  for (const auto& [field, patterns] :
       {std::pair("frozen", &job.frozen), std::pair("trainable", &job.trainable)}) {
    if (patterns->empty()) continue;
    violations.Add(field, "none beside an adapter; modules_to_save names what else is trained",
                   Quoted(patterns->front()));
  }
  // Synthetic data are for measuring, and there any base will do.
  const bool measures = job.data.source() == &SyntheticSource();
  if (job.init_from.empty() && job.model.import_path.empty() && !measures) {
    violations.Add("adapter",
                   "a base whose parameters are trained already: model.import or init_from",
                   "neither");
  }
  if (job.init_from_subset) {
    violations.Add("init_from_subset", "false beside an adapter, whose base must be complete",
                   "true", "false");
  }
  const bool legal = CheckPatterns(lora.targets, kTargets, violations) &
                     CheckPatterns(lora.modules_to_save, kSaved, violations);
  if (legal && model != nullptr) CheckModules(lora, *model, violations);
}

}  // namespace trainyard
