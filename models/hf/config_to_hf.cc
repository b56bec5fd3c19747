// The other direction of config.cc: config.json of a model.

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "models/hf/config.h"
#include "models/hf/field_json.h"
#include "models/hf/meaningless_keys.h"
#include "models/layers/moe_config.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

// Keys of an imported directory that an export does not have: its weights are not quantised, and
// Python files are not carried along.
constexpr const char* kNotCarried[] = {"auto_map", kQuantization, kMlxQuantization};

bool IsNotCarried(const std::string& key) {
  return std::any_of(std::begin(kNotCarried), std::end(kNotCarried),
                     [&](const char* name) { return key == name; });
}

// The first scaling whose factor the model has, and whose type means the model's other settings.
const HfRopeScaling* ScalingOf(const HfTable& table, const ModelConfig& config) {
  for (const HfRopeScaling& scaling : table.rope_scalings) {
    if (IsZero(FindField(config, scaling.factor).value)) continue;
    const bool meant = std::all_of(
        scaling.meant.begin(), scaling.meant.end(),
        [&](const HfMeant& meant) { return FindField(config, meant.field).value == meant.value; });
    if (meant) return &scaling;
  }
  return nullptr;
}

void WriteRope(const HfTable& table, const ModelConfig& config, Json& json) {
  for (const HfKey& key : table.rope_keys) {
    json[key.key] = JsonOf(FindField(config, key.field).value);
  }
  Json& object = json[kRopeScaling];
  if (table.rope_required) object = {{"rope_type", "default"}};
  const HfRopeScaling* const scaling = ScalingOf(table, config);
  if (scaling == nullptr) return;
  object = {{"rope_type", scaling->type}};
  for (const HfKey& key : scaling->keys) {
    object[key.key] = JsonOf(FindField(config, key.field).value);
  }
  for (const HfFixed& fixed : scaling->fixed) object[fixed.key] = ParseJson<Json>(fixed.value);
}

// Leaves out a loss that `transformers` does not have: a field of a run may be lost.
void WriteBalance(const HfBalance& balance, const ModelConfig& config, Json& json) {
  const double loss = std::get<double>(FindField(config, "moe.aux_loss").value);
  const bool of_all_layers = FindField(config, "moe.aux_loss_scope").value ==
                             FieldValue(std::string(Name(BalanceScope::kModel)));
  const bool on = loss > 0 && of_all_layers;
  json[balance.enabled] = on;
  const ExpertFacts experts = FactsOf(config).experts.value_or(ExpertFacts());
  json[balance.coefficient] = on ? loss * double(experts.layers) / double(experts.top_k) : 0.0;
}

// config.json with every key of the table.
Json Whole(const HfTable& table, const ModelConfig& config) {
  // `transformers` would give an absent key an id of its own, which other tokenizers do not have.
  Json json = {{"bos_token_id", nullptr},
               {"eos_token_id", nullptr},
               {"model_type", table.model_type},
               {"architectures", {table.architecture}}};
  for (const HfKey& key : table.keys) {
    const FieldValue value = FindField(config, key.field).value;
    const bool none =
        (key.nonzero && IsZero(value)) || (key.is_token && value == FieldValue(int64_t{-1}));
    json[key.key] = none ? Json() : JsonOf(value);
  }
  if (table.balance) WriteBalance(*table.balance, config, json);
  if (!table.rope_keys.empty()) WriteRope(table, config, json);
  for (const HfFixed& fixed : table.fixed) json[fixed.key] = ParseJson<Json>(fixed.value);
  for (const HfDerived& derived : table.derived) {
    if (derived.written) json[derived.key] = derived.value(config);
  }
  if (table.further_layers != nullptr) json[table.further_layers] = 0;
  return json;
}

// The fields in which the configurations differ.
std::set<std::string> Differences(const ModelConfig& a, const ModelConfig& b) {
  std::set<std::string> names;
  const std::vector<Field> of_a = FieldsOf(a), of_b = FieldsOf(b);
  for (size_t i = 0; i < of_a.size(); ++i) {
    if (of_a[i].value != of_b[i].value) names.insert(of_a[i].rule.name);
  }
  return names;
}

// The imported config.json, in which only those keys have changed that must: the ones of fields
// that differ from the imported model's, and what the export lacks.
class Edit {
 public:
  Edit(const HfTable& table, const Json& imported, const Json& whole)
      : table_(table), whole_(whole), json_(imported) {}

  Json Of(const std::set<std::string>& differ) {
    for (const char* key : kNotCarried) {
      if (Says(key)) json_.erase(key);
    }
    json_["model_type"] = table_.model_type;
    for (const HfKey& key : table_.keys) {
      if (differ.contains(key.field)) Take(key);
    }
    if (table_.balance && (differ.contains("moe.aux_loss") ||
                           differ.contains("moe.aux_loss_scope") || differ.contains("moe.top_k"))) {
      json_[table_.balance->enabled] = whole_[table_.balance->enabled];
      if (json_[table_.balance->enabled] == true) {
        json_[table_.balance->coefficient] = whole_[table_.balance->coefficient];
      }
    }
    if (RopeDiffers(differ)) TakeRope();
    for (const HfDerived& derived : table_.derived) {
      if (Says(derived.key) && whole_.contains(derived.key)) {
        json_[derived.key] = whole_[derived.key];
      }
    }
    const char* const further = table_.further_layers;
    if (further != nullptr && (json_.contains(further) || table_.further_absent != 0)) {
      json_[further] = 0;
    }
    return json_;
  }

 private:
  // A null is kept as it is: it says no more than an absent key.
  bool Says(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }

  void Take(const HfKey& key) {
    const bool alias = key.alias != nullptr && json_.contains(key.alias);
    if (alias) json_[key.alias] = whole_[key.key];
    if (!alias || json_.contains(key.key)) json_[key.key] = whole_[key.key];
  }

  bool RopeDiffers(const std::set<std::string>& differ) const {
    const auto in = [&](const std::vector<HfKey>& keys) {
      return std::any_of(keys.begin(), keys.end(),
                         [&](const HfKey& key) { return differ.contains(key.field); });
    };
    return in(table_.rope_keys) ||
           std::any_of(table_.rope_scalings.begin(), table_.rope_scalings.end(),
                       [&](const HfRopeScaling& scaling) { return in(scaling.keys); });
  }

  // In rope_parameters, the name of later releases, if that is the only one of the imported file. A
  // family's own form of rope_parameters, with an object for each kind of layer, is not written.
  void TakeRope() {
    const Json before = json_.value(kRopeParameters, Json());
    const bool of_kinds = std::any_of(before.begin(), before.end(),
                                      [](const Json& value) { return value.is_object(); });
    const bool earlier = Says(kRopeScaling) && !json_.at(kRopeScaling).empty();
    const bool later = before.is_object() && !of_kinds && !earlier;
    Json object = whole_[kRopeScaling];
    if (later && object.is_null()) object = {{"rope_type", "default"}};
    for (const HfKey& key : table_.rope_keys) {
      const bool at_top = !later || json_.contains(key.key);
      if (at_top) json_[key.key] = whole_[key.key];
      if (!at_top || (later && before.contains(key.key))) object[key.key] = whole_[key.key];
    }
    for (const HfRopeScaling& scaling : table_.rope_scalings) {
      for (const HfKey& key : scaling.keys) {
        if (key.also_at_top) json_.erase(key.key);
      }
    }
    if (!later) json_.erase(kRopeParameters);
    json_[later ? kRopeParameters : kRopeScaling] = object;
  }

  const HfTable& table_;
  const Json& whole_;
  Json json_;
};

// The settings of scalings that the configuration does not use.
std::set<std::string> IdleFields(const HfTable& table, const ModelConfig& config) {
  std::set<std::string> idle;
  for (const HfRopeScaling& scaling : table.rope_scalings) {
    if (!IsZero(FindField(config, scaling.factor).value)) continue;
    for (const HfKey& key : scaling.keys) {
      if (absl::string_view(key.field) != scaling.factor) idle.insert(key.field);
    }
  }
  return idle;
}

// Compares the configuration with the one that is read from its own config.json.
absl::Status CheckExpressed(const HfTable& table, const ModelConfig& config, const Json& json,
                            const std::vector<std::string>& ignored) {
  ASSIGN_OR_RETURN(const ModelConfig again, ConfigFromHf(json, ignored));
  const std::set<std::string> idle = IdleFields(table, config);
  const std::vector<Field> wanted = FieldsOf(config), found = FieldsOf(again);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const bool of_a_run = wanted[i].rule.may_differ == MayDiffer::kAlways;
    if (of_a_run || idle.contains(wanted[i].rule.name)) continue;
    if (wanted[i].value == found[i].value) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("model.", wanted[i].rule.name, ": wanted ", TextOf(found[i].value), ", since ",
                     "config.json of ", config.family(), " cannot express another value, found ",
                     TextOf(wanted[i].value)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Json> ConfigToHf(const ModelConfig& config, const Json& imported,
                                const std::vector<std::string>& ignored) {
  ASSIGN_OR_RETURN(const HfTable* const table, FindHfTable(config));
  Json whole = Whole(*table, config);
  const absl::StatusOr<ModelConfig> before = ConfigFromHf(imported, ignored);
  if (before.ok() && before->family() == config.family()) {
    Json json = Edit(*table, imported, whole).Of(Differences(*before, config));
    if (CheckExpressed(*table, config, json, ignored).ok()) return json;
  }
  // Another model than the imported one may need other keys. What means nothing is carried along.
  for (const auto& [key, value] : imported.items()) {
    const bool read = std::any_of(table->keys.begin(), table->keys.end(),
                                  [&, &name = key](const HfKey& row) { return name == row.key; });
    if (read || FindIgnored(*table, key) == nullptr || IsNotCarried(key)) continue;
    if (whole.value(key, Json()).is_null()) whole[key] = value;
  }
  RETURN_IF_ERROR(CheckExpressed(*table, config, whole, {}));
  return whole;
}

std::vector<std::string> ChangedKeys(const Json& imported, const Json& exported) {
  std::vector<std::string> changed;
  for (const auto& [key, value] : imported.items()) {
    if (!exported.contains(key) || exported[key] != value) changed.push_back(key);
  }
  for (const auto& [key, value] : exported.items()) {
    if (!imported.contains(key)) changed.push_back(key);
  }
  std::sort(changed.begin(), changed.end());
  return changed;
}

}  // namespace trainyard
