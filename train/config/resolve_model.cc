#include "train/config/resolve_model.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "models/arch/registry.h"
#include "train/config/fields.h"

namespace trainyard {

const char* ModelPath(const ModelChoice& choice) {
  if (choice.architecture) return "model.architecture";
  return choice.overrides ? "model.overrides" : "model";
}

namespace {

constexpr size_t kMaxIgnoredKeys = 64, kMaxIgnoredKeyBytes = 256;

void CheckIgnoredKeys(const ModelChoice& choice, Violations& violations) {
  const std::vector<std::string>& keys = choice.ignore_keys;
  const char* const field = "model.ignore_keys";
  if (choice.import_path.empty() && !keys.empty()) {
    violations.Add(field, "none without model.import, whose config.json has them", "some");
  }
  if (keys.size() > kMaxIgnoredKeys) {
    violations.Add(field, absl::StrCat("at most ", kMaxIgnoredKeys, " keys"),
                   absl::StrCat(keys.size()));
  }
  for (const std::string& key : keys) {
    if (!key.empty() && key.size() <= kMaxIgnoredKeyBytes) continue;
    violations.Add(field, absl::StrCat("keys of 1 to ", kMaxIgnoredKeyBytes, " bytes"),
                   absl::StrCat("one of ", key.size()));
    break;
  }
}

// Returns whether the spec names its model in one way, and adds a violation otherwise.
bool IsOneChoice(const ModelChoice& choice, Violations& violations) {
  const bool imports = !choice.import_path.empty();
  if (!choice.preset.empty() && (choice.architecture || imports)) {
    violations.Add("model", imports ? "preset or import" : "preset or architecture", "both");
    return false;
  }
  CheckIgnoredKeys(choice, violations);
  if (imports && !choice.architecture) {
    violations.Add(
        "model.import",
        absl::StrCat("model.architecture beside it, the \"model\" that "
                     "`trainyard import ",
                     choice.import_path, " -o json` prints (`trainyard submit` adds it by itself)"),
        "none");
    return false;
  }
  return true;
}

}  // namespace

std::optional<ModelConfig> ResolveModel(const ModelChoice& choice, Violations& violations) {
  if (!IsOneChoice(choice, violations)) return std::nullopt;
  if (choice.preset.empty() && !choice.architecture) {
    violations.Add("model.preset",
                   absl::StrCat("one of ", absl::StrJoin(PresetNames(), ", "),
                                " (or model.import, or model.architecture)"),
                   "none");
    return std::nullopt;
  }
  if (choice.architecture && choice.overrides) {
    violations.Add("model.overrides", "none beside architecture, which says every field itself",
                   "some");
    return std::nullopt;
  }
  ModelConfig config;
  if (choice.architecture) {
    config = FromFields(*choice.architecture, violations, "model.architecture");
  } else {
    const absl::StatusOr<Preset> preset = FindPreset(choice.preset);
    if (!preset.ok()) {
      violations.Add({.field = "model.preset", .note = std::string(preset.status().message())});
      return std::nullopt;
    }
    config = preset->config;
    if (choice.overrides)
      config = Override(config, *choice.overrides, violations, "model.overrides");
  }
  Violations found, of_given;
  Validate(config, found, ModelPath(choice));
  if (!choice.architecture || violations.empty()) {
    AddUnreported(found, "", violations);
    return config;
  }
  // Where a size is missing, others that follow from it are wrong only for that reason.
  for (const FieldViolation& violation : found.list()) {
    const std::string name(absl::StripPrefix(violation.field, "model.architecture."));
    if (choice.architecture->fields.contains(name)) of_given.Add(violation);
  }
  AddUnreported(of_given, "", violations);
  return config;
}

absl::StatusOr<ModelConfig> ResolveModel(const ModelChoice& choice) {
  Violations violations;
  const std::optional<ModelConfig> config = ResolveModel(choice, violations);
  if (!violations.empty()) return violations.ToStatus();
  return *config;
}

}  // namespace trainyard
