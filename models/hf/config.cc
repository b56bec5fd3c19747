#include "models/hf/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "common/violations.h"
#include "models/hf/block_fp8.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

// Keys of all families that mean nothing for training from the directory's weights. They are
// carried along to an export, but for those of kNotCarried.
constexpr const char* kIgnored[] = {"_name_or_path",
                                    "auto_map",
                                    "bos_token_id",
                                    "decoder_start_token_id",
                                    "dtype",
                                    "eos_token_id",
                                    "initializer_range",
                                    "output_router_logits",
                                    "pad_token_id",
                                    "pretraining_tp",
                                    "return_dict",
                                    "torch_dtype",
                                    "transformers_version",
                                    "unk_token_id",
                                    "use_cache"};
// What an export says itself, and what names Python files, which are not carried along.
constexpr const char* kNotCarried[] = {"_name_or_path", "auto_map", "dtype", "torch_dtype",
                                       "transformers_version"};
// Keys of all families that must have one value. An absent is_causal counts as true, and any other
// value makes attention see later tokens.
constexpr HfFixed kFixed[] = {{"is_causal", "true"}};
constexpr size_t kShownBytes = 200;
constexpr char kRopeParameters[] = "rope_parameters", kRopeScaling[] = "rope_scaling";
constexpr char kQuantization[] = "quantization_config";

template <typename List>
bool Holds(const List& list, const std::string& key) {
  return std::any_of(std::begin(list), std::end(list),
                     [&](const char* name) { return key == name; });
}

std::string Shown(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return VisibleUtf8(text.size() > kShownBytes ? absl::StrCat(CutUtf8(text, kShownBytes), " ...")
                                               : text);
}

Json ToJson(const FieldValue& value) {
  return std::visit([](const auto& v) { return Json(v); }, value);
}

Field FindField(const ModelConfig& config, absl::string_view name) {
  for (Field& field : FieldsOf(config)) {
    if (field.rule.name == name) return std::move(field);
  }
  CHECK(false) << "family " << config.family() << " has no field " << name;
  std::abort();
}

bool IsZero(const FieldValue& value) {
  return value == FieldValue(0.0) || value == FieldValue(int64_t{0});
}

// Returns the value as one of the key's type. If it has another type, returns nullopt, and `wanted`
// receives what was wanted.
std::optional<FieldValue> Take(const Json& json, const HfKey& key, const Field& field,
                               std::string& wanted) {
  if (std::holds_alternative<int64_t>(field.value)) {
    int64_t integer = 0;
    if (ReadInteger(json, integer)) return integer;
    wanted = "a whole number that fits";
  } else if (std::holds_alternative<double>(field.value)) {
    if (json.is_number()) return json.get<double>();
    wanted = "a number";
  } else if (std::holds_alternative<bool>(field.value) || key.if_true != nullptr) {
    if (json.is_boolean()) return json.get<bool>();
    wanted = "true or false";
  } else if (field.choices.empty()) {
    if (json.is_string()) return json.get<std::string>();
    wanted = "text";
  } else {
    const bool known = json.is_string() && std::count(field.choices.begin(), field.choices.end(),
                                                      json.get<std::string>()) > 0;
    if (known) return json.get<std::string>();
    wanted = absl::StrJoin(field.choices, " or ");
  }
  return std::nullopt;
}

// Reads the keys of config.json, and remembers which ones it has read.
class ConfigReader {
 public:
  ConfigReader(const Json& json, const Family& family)
      : table_(*family.hf),
        json_(table_.rewritten != nullptr ? table_.rewritten(json) : json),
        config_(family.defaults) {}

  absl::StatusOr<ModelConfig> Read() {
    used_ = {"model_type", "architectures", kRopeParameters, kRopeScaling, kQuantization};
    CheckArchitectures();
    CheckQuantization();
    for (const HfKey& key : table_.keys) ReadKey(key, {&json_});
    if (!table_.rope_keys.empty()) ReadRope();
    for (const HfFixed& fixed : kFixed) CheckFixed(fixed, json_, "");
    for (const HfFixed& fixed : table_.fixed) CheckFixed(fixed, json_, "");
    if (violations_.empty()) Complete();
    if (violations_.empty()) CheckDerived();
    CheckOthers(json_, used_, "");
    RETURN_IF_ERROR(violations_.ToStatus());
    return config_;
  }

 private:
  // Sets the fields that no key has and that follow from others, and checks all.
  void Complete() {
    const Family& family = *FindFamily(config_.family());
    FieldProblems problems(violations_, "model");
    family.complete(family.defaults, given_, problems, config_);
    if (violations_.empty()) Validate(config_, violations_, "model");
  }

  // Returns the key's value: the first one that is not null. Values of two places must be equal.
  const Json* Find(const char* key, const std::vector<const Json*>& places) {
    used_.insert(key);
    const Json* found = nullptr;
    for (const Json* place : places) {
      const auto it = place->find(key);
      if (it == place->end() || it->is_null()) continue;
      if (found != nullptr && *found != *it) {
        Refuse(key, absl::StrCat("wanted one value, found ", Shown(*found), " and ", Shown(*it)));
      }
      found = &*it;
    }
    return found;
  }

  static bool IsNull(const char* key, const std::vector<const Json*>& places) {
    return std::any_of(places.begin(), places.end(), [&](const Json* place) {
      const auto it = place->find(key);
      return it != place->end() && it->is_null();
    });
  }

  void ReadKey(const HfKey& key, const std::vector<const Json*>& places) {
    const Json* found = Find(key.key, places);
    if (key.alias != nullptr) {
      const Json* const other = Find(key.alias, places);
      if (found != nullptr && other != nullptr && *found != *other) {
        return Refuse(key.key, absl::StrCat("wanted the value of ", key.alias, " = ", Shown(*other),
                                            ", found ", Shown(*found)));
      }
      if (found == nullptr) found = other;
    }
    const Field field = FindField(config_, key.field);
    std::string wanted = "a value";
    const bool null = found == nullptr && IsNull(key.key, places);
    const bool follows = key.derived != nullptr && (null || !key.absent);
    std::optional<FieldValue> value = follows ? key.derived(config_) : key.absent;
    if (null && value == FieldValue(true)) {
      wanted = "true or false";  // `transformers` takes null for false.
      value.reset();
    }
    if (found != nullptr) value = Take(*found, key, field, wanted);
    if (value && key.if_true != nullptr) {
      value = std::string(*value == FieldValue(true) ? key.if_true : key.if_false);
    }
    const auto before = given_.find(key.field);
    if (value && before != given_.end() && before->second != *value) {
      wanted = absl::StrCat(TextOf(before->second), ", as another key says");
      value.reset();
    }
    if (found != nullptr && key.nonzero && value && IsZero(*value)) {
      wanted = "more than 0";
      value.reset();
    }
    if (value) {
      given_[key.field] = *value;
      return SetField(config_, key.field, *value);
    }
    Refuse(key.key, Wanted(wanted, null ? "null" : found == nullptr ? "none" : Shown(*found)));
  }

  void ReadRope() {
    Json object = Json::object();
    const std::string name = Find(kRopeParameters, {&json_}) ? kRopeParameters : kRopeScaling;
    const Json* const given = Find(name.c_str(), {&json_});
    if (given != nullptr && !given->is_object()) {
      return Refuse(name, Wanted("an object", Shown(*given)));
    }
    if (name == kRopeParameters && Find(kRopeScaling, {&json_}) != nullptr) {
      return Refuse(kRopeScaling, "wanted one of rope_parameters and rope_scaling, found both");
    }
    if (given == nullptr && table_.rope_required) return Refuse(name, Wanted("an object", "none"));
    if (given != nullptr) object = *given;
    for (const HfKey& key : table_.rope_keys) ReadKey(key, {&object, &json_});
    std::set<std::string> known = {"rope_type", "type"};
    for (const HfKey& key : table_.rope_keys) known.insert(key.key);
    const Json* type = Find("rope_type", {&object});
    if (type == nullptr) type = Find("type", {&object});
    std::vector<std::string> types = {"default"};
    bool taken = type == nullptr || *type == "default";
    for (const HfRopeScaling& scaling : table_.rope_scalings) {
      types.push_back(scaling.type);
      if (type == nullptr || *type != scaling.type) {
        SetField(config_, scaling.factor, 0.0);
        continue;
      }
      taken = true;
      for (const HfKey& key : scaling.keys) {
        ReadKey(key, {&object});
        known.insert(key.key);
      }
      for (const HfFixed& fixed : scaling.fixed) {
        CheckFixed(fixed, object, name + ".");
        known.insert(fixed.key);
      }
    }
    if (!taken) {
      Refuse(name + ".rope_type", Wanted(absl::StrJoin(types, " or "), Shown(*type)));
    }
    CheckOthers(object, known, name + ".");
  }

  void CheckArchitectures() {
    const Json* const found = Find("architectures", {&json_});
    if (found == nullptr || *found == Json::array({table_.architecture})) return;
    Refuse("architectures", Wanted(absl::StrCat("[\"", table_.architecture, "\"]"), Shown(*found)));
  }

  void CheckQuantization() {
    const Json* const found = Find(kQuantization, {&json_});
    if (found == nullptr) return;
    const bool mxfp4 = std::any_of(table_.tensors.begin(), table_.tensors.end(),
                                   [](const HfTensorRule& rule) { return rule.mxfp4; });
    const auto value = [&](const char* key) {
      return found->is_object() ? found->value(key, Json()) : Json();
    };
    const Json method = value("quant_method"), block = value("weight_block_size");
    const std::string path = absl::StrCat(kQuantization, ".");
    if (method == "fp8" && block != Json::array({kFp8Block, kFp8Block})) {
      return Refuse(path + "weight_block_size", Wanted("[128, 128]", Shown(block)));
    }
    if (method == "fp8" || (mxfp4 && method == "mxfp4")) return;
    Refuse(path + "quant_method",
           Wanted(absl::StrCat("fp8", mxfp4 ? ", mxfp4" : "", ", or weights without quantization"),
                  Shown(method)));
  }

  void CheckFixed(const HfFixed& fixed, const Json& place, const std::string& path) {
    const Json* const found = Find(fixed.key, {&place});
    if (IsNull(fixed.key, {&place}) && Json::parse(fixed.value) != false) {
      return Refuse(path + fixed.key, Wanted(fixed.value, "null"));
    }
    if (found == nullptr && !fixed.required) return;
    if (found != nullptr && *found == Json::parse(fixed.value)) return;
    Refuse(path + fixed.key, Wanted(absl::StrCat(fixed.value, ", as this program has no other"),
                                    found == nullptr ? "none" : Shown(*found)));
  }

  void CheckDerived() {
    for (const HfDerived& derived : table_.derived) {
      const Json* const found = Find(derived.key, {&json_});
      const Json wanted = derived.value(config_);
      if (found == nullptr || *found == wanted) continue;
      Refuse(derived.key, Wanted(Shown(wanted), Shown(*found)));
    }
    checked_derived_ = true;
  }

  // Any key may change what the weights mean.
  void CheckOthers(const Json& place, const std::set<std::string>& known, const std::string& path) {
    for (const auto& [key, value] : place.items()) {
      const bool off = value.is_null() || value == false;
      if (off || known.contains(key) || Holds(kIgnored, key) || Holds(table_.ignored, key))
        continue;
      const bool unchecked =
          !checked_derived_ &&
          std::any_of(table_.derived.begin(), table_.derived.end(),
                      [&, &name = key](const HfDerived& derived) { return name == derived.key; });
      if (unchecked) continue;
      Refuse(path + key,
             Wanted("no such key, as this program does not know what it changes", Shown(value)));
    }
  }

  void Refuse(const std::string& key, const std::string& description) {
    violations_.Add(VisibleUtf8(CutUtf8(key, kShownBytes)), description);
  }

  const HfTable& table_;
  const Json json_;
  ModelConfig config_;
  GivenFields given_;
  Violations violations_;
  std::set<std::string> used_;
  bool checked_derived_ = false;
};

std::vector<std::string> KnownTypes() {
  std::vector<std::string> types;
  for (const Family& family : Families()) {
    if (family.hf) types.push_back(family.hf->model_type);
  }
  return types;
}

void WriteRope(const HfTable& table, const ModelConfig& config, Json& json) {
  for (const HfKey& key : table.rope_keys) {
    json[key.key] = ToJson(FindField(config, key.field).value);
  }
  Json& object = json[kRopeScaling];
  if (table.rope_required) object = {{"rope_type", "default"}};
  for (const HfRopeScaling& scaling : table.rope_scalings) {
    if (FindField(config, scaling.factor).value == FieldValue(0.0)) continue;
    object = {{"rope_type", scaling.type}};
    for (const HfKey& key : scaling.keys) {
      object[key.key] = ToJson(FindField(config, key.field).value);
    }
    for (const HfFixed& fixed : scaling.fixed) object[fixed.key] = Json::parse(fixed.value);
  }
}

// The settings of scalings that the configuration does not use.
std::set<std::string> IdleFields(const HfTable& table, const ModelConfig& config) {
  std::set<std::string> idle;
  for (const HfRopeScaling& scaling : table.rope_scalings) {
    if (FindField(config, scaling.factor).value != FieldValue(0.0)) continue;
    for (const HfKey& key : scaling.keys) {
      if (absl::string_view(key.field) != scaling.factor) idle.insert(key.field);
    }
  }
  return idle;
}

// Compares the configuration with the one that is read from its own config.json.
absl::Status CheckExpressed(const HfTable& table, const ModelConfig& config, const Json& json) {
  ASSIGN_OR_RETURN(const ModelConfig again, ConfigFromHf(json));
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

absl::StatusOr<const HfTable*> FindHfTable(const ModelConfig& config) {
  const Family* const family = FindFamily(config.family());
  if (family != nullptr && family->hf) return &*family->hf;
  std::vector<std::string> known;
  for (const Family& other : Families()) {
    if (other.hf) known.push_back(other.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("family ", config.family(),
                                                 " has no Hugging Face form; wanted one of ",
                                                 absl::StrJoin(known, ", ")));
}

absl::StatusOr<ModelConfig> ConfigFromHf(const Json& json) {
  const auto type = json.find("model_type");
  for (const Family& family : Families()) {
    if (type == json.end() || !family.hf) continue;
    const char* const other = family.hf->other_model_type;
    if (*type != family.hf->model_type && (other == nullptr || *type != other)) continue;
    return ConfigReader(json, family).Read();
  }
  Violations violations;
  violations.Add("model_type", Wanted(absl::StrCat("one of ", absl::StrJoin(KnownTypes(), ", ")),
                                      type == json.end() ? "none" : Shown(*type)));
  return violations.ToStatus();
}

absl::StatusOr<Json> ConfigToHf(const ModelConfig& config, const Json& imported) {
  ASSIGN_OR_RETURN(const HfTable* const table, FindHfTable(config));
  Json json = Json::object();
  for (const auto& [key, value] : imported.items()) {
    const bool carried = Holds(kIgnored, key) || Holds(table->ignored, key);
    if (carried && !Holds(kNotCarried, key)) json[key] = value;
  }
  // `transformers` would give an absent key an id of its own, which other tokenizers do not have.
  for (const char* key : {"bos_token_id", "eos_token_id"}) json.emplace(key, Json());
  json["model_type"] = table->model_type;
  json["architectures"] = {table->architecture};
  for (const HfKey& key : table->keys) {
    const FieldValue value = FindField(config, key.field).value;
    if (key.if_true != nullptr) {
      json[key.key] = value == FieldValue(std::string(key.if_true));
    } else {
      json[key.key] = key.nonzero && IsZero(value) ? Json() : ToJson(value);
    }
  }
  if (!table->rope_keys.empty()) WriteRope(*table, config, json);
  for (const HfFixed& fixed : table->fixed) json[fixed.key] = Json::parse(fixed.value);
  for (const HfDerived& derived : table->derived) json[derived.key] = derived.value(config);
  if (table->further_layers != nullptr) json[table->further_layers] = 0;
  RETURN_IF_ERROR(CheckExpressed(*table, config, json));
  return json;
}

}  // namespace trainyard
