#include "train/config/adapter_patterns.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "models/model.h"
#include "train/config/adapter.h"

namespace trainyard {
namespace {

// Names of a model, and which of them patterns must match.
struct Chosen {
  std::set<std::string> all, chosen;
};

// A pattern with one star, at one of its ends, or none.
bool OneStarMatches(absl::string_view pattern, absl::string_view name) {
  if (absl::StartsWith(pattern, "*")) return absl::EndsWith(name, pattern.substr(1));
  if (absl::EndsWith(pattern, "*")) {
    return absl::StartsWith(name, pattern.substr(0, pattern.size() - 1));
  }
  return pattern == name;
}

// What may stand for a name: its ends, the shortest first; what it begins with, the same; itself.
std::vector<std::string> CandidatesFor(const std::string& name) {
  std::vector<std::string> candidates;
  for (size_t dot = name.rfind('.'); dot != name.npos && dot > 0; dot = name.rfind('.', dot - 1)) {
    candidates.push_back(absl::StrCat("*", name.substr(dot)));
  }
  for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) {
    candidates.push_back(absl::StrCat(name.substr(0, dot + 1), "*"));
  }
  candidates.push_back(name);
  return candidates;
}

// Adds patterns that match the chosen names and no others, and have `part`. Each is the one that
// matches the most names that are left, of those that match the first of them.
void AddPatterns(const Chosen& names, absl::string_view part, std::vector<std::string>& patterns) {
  std::set<std::string> left = names.chosen;
  while (!left.empty()) {
    const std::string name = *left.begin();
    const std::vector<std::string> candidates = CandidatesFor(name);
    std::string best = name;
    int64_t covered = 0;  // Of the names that are left.
    for (const std::string& pattern : candidates) {
      const auto matches = [&](const std::string& other) { return OneStarMatches(pattern, other); };
      const bool suits =
          absl::StrContains(pattern, part) &&
          std::none_of(names.all.begin(), names.all.end(), [&](const std::string& other) {
            return matches(other) && !names.chosen.contains(other);
          });
      const int64_t count = suits ? std::count_if(left.begin(), left.end(), matches) : 0;
      if (count > covered) best = pattern, covered = count;
    }
    patterns.push_back(best);
    std::erase_if(left, [&](const auto& other) { return OneStarMatches(best, other); });
  }
}

std::string ModuleOfWhole(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

}  // namespace

LoraConfig AdapterThatTrains(const ModelConfig& model, const LoraNumbers& numbers,
                             const std::set<std::string>& trained) {
  Chosen linear, experts, whole;
  const LowRank of_all{.rank = 1, .adapts = [](absl::string_view) { return true; }};
  for (const ParameterStorage& storage : DeclareParameters(*CreateModel(model), of_all)) {
    for (const ParameterSpec& spec : storage.parameters) {
      const bool narrow = IsLowRank(spec.name);
      if (!narrow && !spec.stacked) whole.all.insert(ModuleOfWhole(spec.name));
      if (narrow) {
        (spec.stacked ? experts : linear).all.insert(TargetOf(AdaptedModuleOf(spec.name)));
      }
    }
  }
  for (const std::string& name : trained) {
    if (!IsLowRank(name)) {
      whole.chosen.insert(ModuleOfWhole(name));
      continue;
    }
    const std::string target = TargetOf(AdaptedModuleOf(name));
    (IsTargetOfExperts(target) ? experts : linear).chosen.insert(target);
  }
  LoraConfig lora{
      .rank = numbers.rank, .alpha = numbers.alpha, .rslora = numbers.rslora, .dora = numbers.dora};
  if (numbers.nf4) lora.base = LoraBase::kNf4;
  if (!linear.chosen.empty() && linear.chosen == linear.all) {
    lora.targets.push_back(kAllLinear);
  } else {
    AddPatterns(linear, "", lora.targets);
  }
  if (!experts.chosen.empty() && experts.chosen == experts.all) {
    lora.targets.push_back(absl::StrCat("*", kExpertsPart, "*"));
  } else {
    AddPatterns(experts, kExpertsPart, lora.targets);
  }
  AddPatterns(whole, "", lora.modules_to_save);
  return lora;
}

}  // namespace trainyard
