#include "models/arch/registry.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"

namespace trainyard {

const std::vector<Family>& Families() {
#define TRAINYARD_FAMILY(Name) Name##Family(),
  static const std::vector<Family>* const families =
      new std::vector<Family>{TRAINYARD_FOR_EACH_FAMILY(TRAINYARD_FAMILY)};
#undef TRAINYARD_FAMILY
  return *families;
}

const Family* FindFamily(absl::string_view name) {
  for (const Family& family : Families()) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

std::vector<std::string> FamilyNames() {
  std::vector<std::string> names;
  for (const Family& family : Families()) names.push_back(family.name);
  return names;
}

absl::StatusOr<Preset> FindPreset(absl::string_view name) {
  std::vector<std::string> known;
  for (const Family& family : Families()) {
    for (const Preset& preset : family.presets) {
      known.push_back(preset.name);
      known.insert(known.end(), preset.aliases.begin(), preset.aliases.end());
      const bool alias = std::count(preset.aliases.begin(), preset.aliases.end(), name) > 0;
      if (preset.name == name || alias) return preset;
    }
  }
  if (const Family* const family = FindFamily(name)) {
    const auto add = [](std::string* out, const Preset& one) { absl::StrAppend(out, one.name); };
    return absl::NotFoundError(absl::StrCat("no model \"", name,
                                            "\"; the models of this family are ",
                                            absl::StrJoin(family->presets, ", ", add)));
  }
  const std::string lower = absl::AsciiStrToLower(name);
  std::string near = NearestName(lower, known);
  if (near.empty() && !lower.empty()) {  // The part before a size is a good guess, too.
    const auto first = std::find_if(known.begin(), known.end(), [&](const std::string& one) {
      return absl::StartsWith(one, lower);
    });
    if (first != known.end()) near = *first;
  }
  return absl::NotFoundError(
      absl::StrCat("no model \"", name, "\"; ",
                   near.empty() ? absl::StrCat("known are ", absl::StrJoin(known, ", "))
                                : absl::StrCat("did you mean ", near, "?")));
}

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Family& family : Families()) {
    for (const Preset& preset : family.presets) names.push_back(preset.name);
  }
  return names;
}

std::unique_ptr<Model> CreateModel(const ModelConfig& config) {
  Violations violations;
  Validate(config, violations, "model");
  CHECK(violations.empty()) << violations.ToStatus().message();
  return FindFamily(config.family())->create(config);
}

}  // namespace trainyard
