#include "cli/spec_message.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/json.h"
#include "train/config/fields.h"
#include "train/config/read_model.h"

namespace trainyard::cli {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using Json = nlohmann::json;

// Returns the full name of the enum's value, or "" if the enum has none.
std::string EnumName(const std::string& text, const google::protobuf::EnumDescriptor& names) {
  const absl::string_view prefix = absl::StripSuffix(names.value(0)->name(), "UNSPECIFIED");
  for (const std::string& name : {text, absl::StrCat(prefix, text)}) {
    if (names.FindValueByName(name) != nullptr) return name;
  }
  return "";
}

Json ScalarJson(const std::string& text, const FieldDescriptor& field) {
  if (field.enum_type() != nullptr) return EnumName(text, *field.enum_type());
  if (field.type() == FieldDescriptor::TYPE_STRING) return text;
  if (field.type() == FieldDescriptor::TYPE_BOOL) return text == "true";
  if (field.type() == FieldDescriptor::TYPE_DOUBLE) return ReadNumber(text).value_or(0);
  return WholeDigits(text).value_or(text);  // Of "1e3", for example. JSON may quote an integer.
}

Json ToJson(const YamlNode& node, const Descriptor& message) {
  Json json = Json::object();
  for (const auto& [key, value] : node.fields) {
    const FieldDescriptor* const field = FieldOf(message, key);
    if (field == nullptr) {
      json[key] = value.text;  // Which the message refuses.
    } else if (field->is_repeated() && !field->is_map()) {
      json[key] = Json::array();
      for (const YamlNode& item : value.items) {
        json[key].push_back(field->message_type() != nullptr ? ToJson(item, *field->message_type())
                                                             : ScalarJson(item.text, *field));
      }
    } else if (field->message_type() != nullptr) {
      json[key].update(ToJson(value, *field->message_type()));
    } else if (value.kind == YamlNode::Kind::kNull) {
      continue;
    } else if (field->containing_type() != &message) {
      json[kFieldsBeside][key] = value.text;
    } else if (field->enum_type() != nullptr && EnumName(value.text, *field->enum_type()).empty()) {
      json[key + kNameBeside] = value.text;
    } else {
      json[key] = ScalarJson(value.text, *field);
    }
  }
  return json;
}

}  // namespace

const FieldDescriptor* FieldOf(const Descriptor& message, const std::string& key) {
  if (message.options().map_entry()) return message.map_value();
  const FieldDescriptor* const own = message.FindFieldByName(key);
  const FieldDescriptor* const beside = message.FindFieldByName(kFieldsBeside);
  if (own != nullptr || beside == nullptr) return own;
  const std::vector<std::string> names = ArchitectureNames();
  const bool known = std::find(names.begin(), names.end(), key) != names.end();
  return known ? beside->message_type()->map_value() : nullptr;
}

absl::Status FillMessage(const YamlNode& node, v1::JobSpec& spec) {
  const std::string json = JsonText(ToJson(node, *v1::JobSpec::descriptor()));
  const auto filled = google::protobuf::util::JsonStringToMessage(json, &spec);
  if (filled.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the spec cannot be sent: ", std::string(filled.message())));
}

}  // namespace trainyard::cli
