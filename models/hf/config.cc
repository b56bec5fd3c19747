#include "models/hf/config.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/json.h"
#include "common/python_json.h"
#include "common/shown.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "common/violations.h"
#include "models/hf/block_fp8.h"
#include "models/hf/field_json.h"
#include "models/hf/meaningless_keys.h"
#include "models/layers/moe_config.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

// Keys of all families that must have one value. An absent is_causal counts as true, and any other
// value makes attention see later tokens.
constexpr HfFixed kFixed[] = {{"is_causal", "true"}};

std::string Visible(const std::string& key) { return VisibleUtf8(CutUtf8(key, kShownBytes)); }

std::string ShownJson(const Json& json) {
  const std::string text = DumpPythonJson(json, -1);
  return VisibleUtf8(text.size() > kShownBytes ? absl::StrCat(CutUtf8(text, kShownBytes), " ...")
                                               : text);
}

// Returns the value as one of the field's type. If it has another type, returns nullopt, and
// `wanted` receives what was wanted.
std::optional<FieldValue> Take(const Json& json, const Field& field, std::string& wanted) {
  if (std::holds_alternative<int64_t>(field.value)) {
    int64_t integer = 0;
    if (ReadInteger(json, integer)) return integer;
    wanted = "a whole number that fits";
  } else if (std::holds_alternative<double>(field.value)) {
    if (json.is_number()) return json.get<double>();
    wanted = "a number";
  } else if (std::holds_alternative<bool>(field.value)) {
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

// A place where keys of config.json stand: the top, or an object in it. A key is known in the place
// where it was looked for, and only there.
struct Place {
  const Json& object;
  std::string path;  // What comes before a key's name: "", "rope_scaling.".
  std::set<std::string> known = {};
};
using Places = std::initializer_list<Place*>;

// Reads the keys of config.json, and remembers which ones it has read.
class ConfigReader {
 public:
  ConfigReader(const Json& json, const Family& family, const std::vector<std::string>& ignored)
      : table_(*family.hf),
        json_(table_.rewritten != nullptr ? table_.rewritten(json) : json),
        ignored_(ignored.begin(), ignored.end()),
        config_(family.defaults) {
    const bool is_other = table_.other && json_["model_type"] == table_.other->model_type;
    if (is_other) other_ = &*table_.other;
  }

  absl::StatusOr<ModelConfig> Read() {
    top_.known = {"model_type"};
    CheckArchitectures();
    CheckQuantization();
    for (const HfKey& key : table_.keys) ReadKey(key, {&top_});
    if (table_.balance) ReadBalance(*table_.balance);
    if (!table_.rope_keys.empty()) ReadRope();
    for (const HfFixed& fixed : kFixed) CheckFixed(fixed, top_);
    for (const HfFixed& fixed : table_.fixed) CheckFixed(fixed, top_);
    if (other_ != nullptr) CheckOtherType();
    if (violations_.empty()) Complete();
    if (violations_.empty()) CheckDerived();
    CheckOthers(top_);
    RETURN_IF_ERROR(violations_.ToStatus());
    for (const std::string& key : ignored_) {
      Refuse(key, "keys that config.json has among the ignored ones", "another");
    }
    RETURN_IF_ERROR(violations_.ToStatus());
    return config_;
  }

 private:
  struct Found {
    const Json* value = nullptr;  // Null: the key is absent or null.
    std::string path;             // The key with its place.
    bool null = false;            // The key stands somewhere as null.
  };

  // Where a field's value comes from.
  struct Origin {
    std::string path = {};      // The key with its place.
    bool there = false;         // The key has the value. Otherwise the key is absent or null.
    std::string computed = {};  // How the field follows from the key; empty: it is the key's value.
  };

  // Sets the fields that no key has and that follow from others, and checks all.
  void Complete() {
    const Family& family = *FindFamily(config_.family());
    Violations found;
    FieldProblems problems(found, "");
    family.complete(family.defaults, given_, problems, config_);
    StopBias();
    if (found.empty()) Validate(config_, found, "");
    for (const FieldViolation& violation : found.list()) RefuseField(violation);
  }

  // The user has config.json before them, and not the names of this program's fields. Descriptions
  // may name other fields, though, so the field is given, too.
  void RefuseField(FieldViolation violation) {
    std::vector<std::string> notes;
    std::string key = absl::StrCat("model.", violation.field);
    if (const auto found = keys_.find(violation.field); found != keys_.end()) {
      const auto& [path, there, computed] = found->second;
      key = path;
      if (path != violation.field) {
        notes.push_back(absl::StrCat(violation.field, " in a job spec",
                                     computed.empty() ? "" : " is ", computed));
      }
      if (!there) notes.push_back("config.json has no value for the key");
    }
    violation.field = Visible(key);
    if (!violation.note.empty()) notes.push_back(violation.note);
    violation.note = absl::StrJoin(notes, "; ");
    violations_.Add(std::move(violation));
  }

  // `transformers` moves no bias of a router.
  void StopBias() {
    if (FindValue(config_, "moe.expert_bias") != FieldValue(true)) return;
    SetField(config_, "moe.bias_update_rate", 0.0);
  }

  // Returns the key's value in the first place where it is not null. Values of two places must be
  // equal.
  Found Find(const char* key, Places places) {
    Found found{.path = (*places.begin())->path + key};
    for (Place* const place : places) {
      place->known.insert(key);
      const auto it = place->object.find(key);
      if (it == place->object.end()) continue;
      found.null = found.null || it->is_null();
      if (it->is_null()) continue;
      const std::string path = place->path + key;
      if (found.value == nullptr) {
        found.value = &*it;
        found.path = path;
      } else if (*found.value != *it) {
        Refuse(path, absl::StrCat("the value of ", found.path, ", ", ShownJson(*found.value)),
               ShownJson(*it));
      }
    }
    return found;
  }

  void ReadKey(const HfKey& key, Places places) {
    Found found = Find(key.key, places);
    if (key.alias != nullptr) {
      const Found other = Find(key.alias, places);
      if (found.value != nullptr && other.value != nullptr && *found.value != *other.value) {
        return Refuse(found.path,
                      absl::StrCat("the value of ", key.alias, " = ", ShownJson(*other.value)),
                      ShownJson(*found.value));
      }
      if (found.value == nullptr && other.value != nullptr) {
        found.value = other.value;
        found.path = other.path;
      }
    }
    const Field field = FindField(config_, key.field);
    std::string wanted = "a value";
    const bool null = found.value == nullptr && found.null;
    const bool follows = key.derived != nullptr && (null || !key.absent);
    std::optional<FieldValue> value = follows ? key.derived(config_) : key.absent;
    if (null && value == FieldValue(true)) {
      wanted = "true or false";  // `transformers` takes null for false.
      value.reset();
    }
    if (found.value != nullptr) value = Take(*found.value, field, wanted);
    if (found.value != nullptr && value && key.is_token) value = TokenOf(std::get<int64_t>(*value));
    const auto before = given_.find(key.field);
    if (value && before != given_.end() && before->second != *value) {
      wanted = absl::StrCat(TextOf(before->second), ", as another key says");
      value.reset();
    }
    if (found.value != nullptr && key.nonzero && value && IsZero(*value)) {
      wanted = "more than 0";
      value.reset();
    }
    if (value) {
      Origin& origin = keys_[key.field];
      if (!origin.there) origin = {found.path, found.value != nullptr};
      return Set(key.field, *value);
    }
    Refuse(found.path, wanted,
           null                     ? "null"
           : found.value == nullptr ? "none"
                                    : ShownJson(*found.value));
  }

  // A token beyond the vocabulary, as of a model whose vocabulary was cut, is none. A negative one
  // that is beyond the vocabulary stays, and is refused with the fields.
  int64_t TokenOf(int64_t token) const {
    const int64_t vocab = FactsOf(config_).vocab;
    if (token >= vocab) return -1;
    return token < 0 && token >= -vocab ? token + vocab : token;
  }

  void Set(const char* field, const FieldValue& value) {
    given_[field] = value;
    SetField(config_, field, value);
  }

  // With an even load, the loss of `transformers` is the coefficient times the number of a token's
  // experts, for all layers together. Ours is moe.aux_loss for each layer.
  void ReadBalance(const HfBalance& balance) {
    const Found enabled = Find(balance.enabled, {&top_});
    const Found coefficient = Find(balance.coefficient, {&top_});
    if (enabled.value != nullptr && !enabled.value->is_boolean()) {
      return Refuse(enabled.path, "true or false", ShownJson(*enabled.value));
    }
    if (coefficient.value != nullptr && !coefficient.value->is_number()) {
      return Refuse(coefficient.path, "a number", ShownJson(*coefficient.value));
    }
    const bool on = enabled.value != nullptr && *enabled.value == true;
    const double value =
        coefficient.value == nullptr ? balance.absent : coefficient.value->get<double>();
    const ExpertFacts experts = FactsOf(config_).experts.value_or(ExpertFacts());
    const double layers = double(std::max<int64_t>(1, experts.layers));
    keys_["moe.aux_loss"] = {
        coefficient.path, coefficient.value != nullptr,
        absl::StrCat(value, " x ", experts.top_k, " experts of a token / ", layers, " layers")};
    Set("moe.aux_loss", on ? value * double(experts.top_k) / layers : 0.0);
    Set("moe.aux_loss_scope", std::string(Name(on ? BalanceScope::kModel : BalanceScope::kBatch)));
  }

  // Rotary settings are in rope_scaling or in rope_parameters, the name of later releases. Of both,
  // `transformers` takes rope_scaling, and the other must say the same.
  void ReadRope() {
    const Found scaling = Find(kRopeScaling, {&top_}), later = Find(kRopeParameters, {&top_});
    for (const HfKey& key : table_.rope_keys) top_.known.insert(key.key);
    for (const Found* found : {&scaling, &later}) {
      if (found->value == nullptr || found->value->is_object()) continue;
      return Refuse(found->path, "an object", ShownJson(*found->value));
    }
    const bool earlier = scaling.value != nullptr && !scaling.value->empty();
    const Found& given = earlier || later.value == nullptr ? scaling : later;
    if (given.value == nullptr && table_.rope_required) {
      return Refuse(later.path, absl::StrCat("an object here or in ", kRopeScaling), "none");
    }
    const Json none = Json::object();
    Place place{given.value == nullptr ? none : *given.value, given.path + "."};
    if (earlier && later.value != nullptr && !CheckSame(*later.value, place.object)) return;
    ReadScaling(place);
  }

  // Whether all settings of rope_parameters are those of rope_scaling, or of keys beside it.
  bool CheckSame(const Json& later, const Json& earlier) {
    for (const auto& [key, value] : later.items()) {
      const auto same = earlier.find(key == "rope_type" && !earlier.contains(key) ? "type" : key);
      const auto row = std::find_if(table_.rope_keys.begin(), table_.rope_keys.end(),
                                    [&, &name = key](const HfKey& k) { return name == k.key; });
      Json wanted;
      if (same != earlier.end()) {
        wanted = *same;
      } else if (row != table_.rope_keys.end()) {
        wanted = json_.contains(key) ? json_[key] : row->absent ? JsonOf(*row->absent) : Json();
      }
      if (value.is_null() || value == wanted) continue;
      Refuse(absl::StrCat(kRopeParameters, ".", key),
             absl::StrCat("the value of ", kRopeScaling, ", ",
                          wanted.is_null() ? "which has none" : ShownJson(wanted)),
             ShownJson(value));
      return false;
    }
    return true;
  }

  void ReadScaling(Place& place) {
    for (const HfKey& key : table_.rope_keys) ReadKey(key, {&place, &top_});
    for (const HfRopeScaling& scaling : table_.rope_scalings) {
      SetField(config_, scaling.factor, 0.0);
    }
    const Json* const type = Find("rope_type", {&place}).value;
    const Json* const earlier_name = Find("type", {&place}).value;
    const Json name = type != nullptr ? *type : earlier_name != nullptr ? *earlier_name : "default";
    std::vector<std::string> types = {"default"};
    for (const HfRopeScaling& scaling : table_.rope_scalings) {
      types.push_back(scaling.type);
      if (name != scaling.type) continue;
      for (const HfMeant& meant : scaling.meant) Set(meant.field, meant.value);
      for (const HfKey& key : scaling.keys) {
        key.also_at_top ? ReadKey(key, {&place, &top_}) : ReadKey(key, {&place});
      }
      for (const HfFixed& fixed : scaling.fixed) CheckFixed(fixed, place);
      return CheckOthers(place);
    }
    if (name == "default") return CheckOthers(place);
    Refuse(place.path + (type != nullptr ? "rope_type" : "type"),
           absl::StrCat(absl::StrJoin(types, " or "), ", as family ", config_.family(),
                        " has no other scaling of rotary positions"),
           ShownJson(name));
  }

  void CheckArchitectures() {
    const Json* const found = Find("architectures", {&top_}).value;
    const std::string wanted = other_ != nullptr ? other_->architecture : table_.architecture;
    if (found == nullptr || *found == Json::array({wanted})) return;
    Refuse("architectures", absl::StrCat("[\"", wanted, "\"]"), ShownJson(*found));
  }

  void CheckOtherType() {
    for (const HfFixed& fixed : other_->fixed) CheckFixed(fixed, top_);
    for (const char* key : other_->required) {
      if (Find(key, {&top_}).value != nullptr) continue;
      Refuse(key, absl::StrCat("a value, as the default of ", other_->model_type, " is another"),
             "none");
    }
  }

  void CheckQuantization() {
    const Json* const found = Find(kQuantization, {&top_}).value;
    const Json* const of_mlx = Find(kMlxQuantization, {&top_}).value;
    if (of_mlx != nullptr && *of_mlx != false && (found == nullptr || *found != *of_mlx)) {
      Refuse(kMlxQuantization, "weights without quantization", ShownJson(*of_mlx));
    }
    if (found == nullptr) return;
    const bool mxfp4 = std::any_of(table_.tensors.begin(), table_.tensors.end(),
                                   [](const HfTensorRule& rule) { return rule.mxfp4; });
    const auto value = [&](const char* key) {
      return found->is_object() ? found->value(key, Json()) : Json();
    };
    const Json method = value("quant_method"), block = value("weight_block_size");
    const std::string path = absl::StrCat(kQuantization, ".");
    if (method == "fp8" && block != Json::array({kFp8Block, kFp8Block})) {
      return Refuse(path + "weight_block_size", "[128, 128]", ShownJson(block));
    }
    if (method == "fp8" || (mxfp4 && method == "mxfp4")) return;
    Refuse(path + "quant_method",
           absl::StrCat("fp8", mxfp4 ? ", mxfp4" : "", ", or weights without quantization"),
           ShownJson(method));
  }

  void CheckFixed(const HfFixed& fixed, Place& place) {
    const Found found = Find(fixed.key, {&place});
    const Json wanted = ParseJson<Json>(fixed.value);
    if (found.value == nullptr && found.null) {
      const bool empty = wanted == nullptr || wanted == false || wanted == Json::array();
      return empty ? void() : Refuse(found.path, fixed.value, "null");
    }
    if (found.value == nullptr && !fixed.required) return;
    if (found.value != nullptr && *found.value == wanted) return;
    Refuse(found.path, absl::StrCat(fixed.value, ", as this program has no other"),
           found.value == nullptr ? "none" : ShownJson(*found.value));
  }

  void CheckDerived() {
    for (const HfDerived& derived : table_.derived) {
      const Json* const found = Find(derived.key, {&top_}).value;
      const Json wanted = derived.value(config_);
      if (found == nullptr || *found == wanted) continue;
      Refuse(derived.key, ShownJson(wanted), ShownJson(*found));
    }
    checked_derived_ = true;
  }

  bool IsUncheckedDerived(const std::string& key) const {
    return !checked_derived_ && std::any_of(table_.derived.begin(), table_.derived.end(),
                                            [&](const HfDerived& row) { return key == row.key; });
  }

  // Any key may change what the weights mean.
  void CheckOthers(const Place& place) {
    for (const auto& [key, value] : place.object.items()) {
      const std::string path = place.path + key;
      const bool ignored = ignored_.erase(path) > 0;
      const bool read = place.known.contains(key) || IsUncheckedDerived(key);
      if (read && ignored) {
        Refuse(path, "a key that this program does not read among the ignored ones");
      }
      // A rotary setting of one kind of layers (gemma3) always means something.
      const bool of_a_kind =
          absl::StartsWith(key, "full_attention") || absl::StartsWith(key, "sliding_attention");
      const HfIgnored* const row = &place == &top_ ? FindIgnored(table_, key) : nullptr;
      if (read || (ignored && !of_a_kind) || MeansNothing(row, value)) continue;
      if (of_a_kind) {
        Refuse(path,
               absl::StrCat("none, as family ", config_.family(),
                            " has no such setting for one kind of layers"),
               ShownJson(value));
        continue;
      }
      if (row != nullptr) {
        Refuse(path, absl::StrCat(row->value, ", as this program has no other"), ShownJson(value));
        continue;
      }
      Refuse(
          path,
          absl::StrCat("no such key, as this program does not know what it changes "
                       "(--ignore ",
                       Visible(path), ", or model.ignore_keys in a spec, if it changes nothing)"),
          ShownJson(value));
    }
  }

  void Refuse(const std::string& key, const absl::AlphaNum& wanted,
              const absl::AlphaNum& found = "") {
    violations_.Add(Visible(key), wanted, found);
  }

  const HfTable& table_;
  const Json json_;
  Place top_{json_, ""};
  std::set<std::string> ignored_;  // Of these, the ones that were not found yet.
  ModelConfig config_;
  GivenFields given_;
  std::map<std::string, Origin> keys_;  // By field.
  Violations violations_;
  const HfOtherType* other_ = nullptr;  // Null: the directory has the type of the table.
  bool checked_derived_ = false;
};

std::vector<std::string> KnownTypes() {
  std::vector<std::string> types;
  for (const Family& family : Families()) {
    if (!family.hf) continue;
    types.push_back(family.hf->model_type);
    if (family.hf->other) types.push_back(family.hf->other->model_type);
  }
  return types;
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

absl::StatusOr<ModelConfig> ConfigFromHf(const Json& json,
                                         const std::vector<std::string>& ignored) {
  const auto type = json.find("model_type");
  for (const Family& family : Families()) {
    if (type == json.end() || !family.hf) continue;
    const std::optional<HfOtherType>& other = family.hf->other;
    if (*type != family.hf->model_type && (!other || *type != other->model_type)) continue;
    return ConfigReader(json, family, ignored).Read();
  }
  return WrongField("model_type", absl::StrCat("one of ", absl::StrJoin(KnownTypes(), ", ")),
                    type == json.end() ? "none" : ShownJson(*type));
}

}  // namespace trainyard
