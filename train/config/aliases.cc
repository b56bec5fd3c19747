#include "train/config/aliases.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/declared.h"
#include "models/arch/registry.h"

namespace trainyard {
namespace {

struct Alias {
  absl::string_view theirs, ours;
};

// Values of precisions. Megatron names recipes without FP8.
constexpr Alias kValueAliases[] = {
    {"FP8", "FP8_CURRENT"},
    {"BF16-MIXED", "BF16"},
    {"BFLOAT16", "BF16"},
    {"16-MIXED", "BF16"},
    {"FLOAT32", "F32"},
    {"32-TRUE", "F32"},
    {"DELAYED", "FP8_DELAYED"},
    {"TENSORWISE", "FP8_CURRENT"},
    {"BLOCKWISE", "FP8_BLOCKWISE"},
    {"ROWWISE", "FP8_ROWWISE"},
};

// Whether `names`, with spaces in between, has the name.
bool HasName(absl::string_view names, absl::string_view name) {
  const std::vector<absl::string_view> all = absl::StrSplit(names, ' ', absl::SkipEmpty());
  return std::find(all.begin(), all.end(), name) != all.end();
}

// The fields of the family for which config.json has the key.
void FindKeys(const HfTable& table, absl::string_view name, std::vector<std::string>& found) {
  for (const std::vector<HfKey>* const keys : {&table.keys, &table.rope_keys}) {
    for (const HfKey& key : *keys) {
      if (name == key.key || (key.alias != nullptr && name == key.alias)) {
        found.emplace_back(key.field);
      }
    }
  }
  if (table.balance && name == table.balance->coefficient) found.emplace_back("moe.aux_loss");
}

// The paths of all settings that others call `name`. Those of the model begin below its section.
std::vector<std::string> PathsFor(absl::string_view name) {
  std::vector<std::string> found;
  for (const DeclaredField& field : kDeclaredFields) {
    absl::string_view path = field.path;
    if (!HasName(field.names, name) || absl::StartsWith(path, "model.architecture.")) continue;
    absl::ConsumePrefix(&path, "model.overrides.");
    found.emplace_back(path);
  }
  for (const Family& family : Families()) {
    if (family.hf) FindKeys(*family.hf, name, found);
  }
  if (name == "num_embeds_ada_norm") found.emplace_back("num_classes");  // Only in `fields`.
  return found;
}

// Whether the spec has the section of the field.
bool HasSectionOf(const YamlNode& spec, absl::string_view path) {
  const YamlNode* node = &spec;
  for (size_t dot = 0; node != nullptr && (dot = path.find('.')) != path.npos;) {
    node = node->Find(path.substr(0, dot));
    path.remove_prefix(dot + 1);
  }
  return node != nullptr;
}

}  // namespace

std::string OurValueFor(absl::string_view value) {
  for (const Alias& alias : kValueAliases) {
    if (alias.theirs == value) return std::string(alias.ours);
  }
  return "";
}

std::string OurNameFor(absl::string_view name, const YamlNode& spec) {
  const std::vector<std::string> paths = PathsFor(name);
  const auto there = std::find_if(paths.begin(), paths.end(), [&](const std::string& path) {
    return HasSectionOf(spec, path);
  });
  return there != paths.end() ? *there : paths.empty() ? "" : paths.front();
}

}  // namespace trainyard
