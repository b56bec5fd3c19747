#include "models/arch/config_json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "models/arch/registry.h"

namespace trainyard {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kMostInteger = int64_t{1} << 62;

// Splits a name into its group ("" for none) and the field's own name.
std::pair<std::string, std::string> Split(absl::string_view name) {
  const size_t dot = name.find('.');
  if (dot == name.npos) return {"", std::string(name)};
  return {std::string(name.substr(0, dot)), std::string(name.substr(dot + 1))};
}

// Returns null if an object on the path is missing.
const OrderedJson* Find(const OrderedJson& json, absl::string_view name) {
  const OrderedJson* at = &json;
  for (const absl::string_view part : absl::StrSplit(name, '.')) {
    if (!at->is_object() || !at->contains(part)) return nullptr;
    at = &at->at(part);
  }
  return at;
}

// Takes the value and returns "". If the value has another type, returns what was wanted.
std::string Take(const OrderedJson& json, const FieldRef& field) {
  if (auto* const* integer = std::get_if<int64_t*>(&field)) {
    const bool whole = json.is_number_integer();  // Beyond 2^63 the int64_t is negative.
    if (!whole || json.get<int64_t>() < 0 || json.get<int64_t>() > kMostInteger) {
      return "a whole number from 0 to 2^62";
    }
    **integer = json.get<int64_t>();
  } else if (auto* const* number = std::get_if<double*>(&field)) {
    if (!json.is_number()) return "a number";
    **number = json.get<double>();
  } else if (auto* const* flag = std::get_if<bool*>(&field)) {
    if (!json.is_boolean()) return "true or false";
    **flag = json.get<bool>();
  } else if (auto* const* text = std::get_if<std::string*>(&field)) {
    if (!json.is_string()) return "text";
    **text = json.get<std::string>();
  } else {
    const std::vector<std::string>& names = std::get<Choice>(field).names;
    const bool known =
        json.is_string() && std::count(names.begin(), names.end(), json.get<std::string>()) > 0;
    if (!known) return absl::StrJoin(names, " or ");
    Assign(field, json.get<std::string>());
  }
  return "";
}

// A field that this program does not know may change what the parameters mean.
absl::Status CheckKnown(const OrderedJson& json, const std::set<std::string>& known) {
  for (const auto& [key, value] : json.items()) {
    std::vector<std::string> names = {key};
    if (value.is_object()) {
      names.clear();
      for (const auto& [name, unused] : value.items())
        names.push_back(absl::StrCat(key, ".", name));
    }
    for (const std::string& name : names) {
      if (known.contains(name)) continue;
      return absl::UnimplementedError(absl::StrCat(
          "model.", name, ": this program does not know the field, which a later version wrote"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

OrderedJson ToJson(const ModelConfig& config, Implied implied) {
  OrderedJson json = {{"family", config.family()}};
  for (const Field& field : FieldsOf(config)) {
    if (field.rule.unset || (field.rule.implied && implied == Implied::kLeftOut)) continue;
    const auto [group, name] = Split(field.rule.name);
    OrderedJson& place = group.empty() ? json : json[group];
    std::visit([&, &key = name](const auto& value) { place[key] = value; }, field.value);
  }
  return json;
}

absl::StatusOr<ModelConfig> ModelFromJson(const OrderedJson& json) {
  const OrderedJson* const name = Find(json, "family");
  const Family* const family =
      name != nullptr && name->is_string() ? FindFamily(name->get<std::string>()) : nullptr;
  if (family == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.family: wanted ", absl::StrJoin(FamilyNames(), " or "), ", which this build has"));
  }
  ModelConfig config = family->defaults;
  absl::Status status;
  std::set<std::string> known = {"family"};
  family->visit(config, [&](const FieldRule& rule, const FieldRef& field) {
    known.insert(rule.name);
    const std::string group = Split(rule.name).first;
    const OrderedJson* const place = group.empty() ? &json : Find(json, group);
    const bool left_out = rule.unset && Find(json, group.empty() ? rule.name : group) == nullptr;
    const bool implied = rule.implied && place != nullptr && Find(json, rule.name) == nullptr;
    if (!status.ok() || left_out || implied) return;
    if (place == nullptr || !place->is_object()) {
      status = absl::InvalidArgumentError(absl::StrCat("model.", group, ": wanted an object"));
      return;
    }
    const OrderedJson* const value = Find(json, rule.name);
    const std::string wanted = value == nullptr ? "a value, found none" : Take(*value, field);
    if (wanted.empty()) return;
    status = absl::InvalidArgumentError(absl::StrCat("model.", rule.name, ": wanted ", wanted));
  });
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(CheckKnown(json, known));
  return config;
}

}  // namespace trainyard
