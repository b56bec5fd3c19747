#include "train/config/message_node.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "common/violations.h"
#include "train/config/fields.h"
#include "train/config/read_model.h"

namespace trainyard {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

absl::Status CannotHold(const FieldDescriptor& field, const std::string& text) {
  return absl::InvalidArgumentError(
      absl::StrCat("the spec cannot be sent: ", field.full_name(), " cannot hold ", Quoted(text)));
}

// Keeps what the parser of Protocol Buffers says of a value from the log.
class Silent final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int /*line*/, int /*column*/, const std::string& /*message*/) override {}
};

// Sets a single value, or adds it to a list. False: the field cannot hold it.
bool Put(const std::string& text, const FieldDescriptor& field, Message& message) {
  const Reflection& reflection = *message.GetReflection();
  std::string value = text;
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    field.is_repeated() ? reflection.AddString(&message, &field, text)
                        : reflection.SetString(&message, &field, text);
    return true;
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    reflection.SetDouble(&message, &field, ReadNumber(text).value_or(0));
    return true;
  } else if (field.enum_type() != nullptr) {  // The prefix may be missing.
    const absl::string_view unset = field.enum_type()->value(0)->name();
    const absl::string_view prefix = absl::StripSuffix(unset, "UNSPECIFIED");
    if (!absl::StartsWith(text, prefix)) value = absl::StrCat(prefix, text);
    if (field.enum_type()->FindValueByName(value) == nullptr) return false;
  } else if (field.cpp_type() != FieldDescriptor::CPPTYPE_BOOL) {
    value = WholeDigits(text).value_or(text);  // Of "1e3", for example.
  }
  Silent silent;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&silent);
  return parser.ParseFieldValueFromString(value, &field, &message);
}

void AddEntry(const std::string& key, const std::string& value, const FieldDescriptor& map,
              Message& message) {
  Message& entry = *message.GetReflection()->AddMessage(&message, &map);
  Put(key, *map.message_type()->map_key(), entry);
  Put(value, *map.message_type()->map_value(), entry);
}

absl::Status FillField(const std::string& key, const YamlNode& value, Message& message) {
  const Descriptor& type = *message.GetDescriptor();
  const Reflection& reflection = *message.GetReflection();
  const FieldDescriptor* const field = FieldOf(type, key);
  if (field == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("the spec cannot be sent: ", type.full_name(), " has no field ", key));
  }
  if (field->containing_type() != &type) {  // The map of the fields beside those of the message.
    AddEntry(key, value.text, *type.FindFieldByName(kFieldsBeside), message);
  } else if (field->is_map()) {
    for (const auto& [name, entry] : value.fields) AddEntry(name, entry.text, *field, message);
  } else if (field->is_repeated()) {
    for (const YamlNode& item : value.items) {
      if (field->message_type() != nullptr) {
        RETURN_IF_ERROR(FillMessage(item, *reflection.AddMessage(&message, field)));
      } else if (!Put(item.text, *field, message)) {
        return CannotHold(*field, item.text);
      }
    }
  } else if (field->message_type() != nullptr) {
    return FillMessage(value, *reflection.MutableMessage(&message, field));
  } else if (value.kind != YamlNode::Kind::kNull && !Put(value.text, *field, message)) {
    // What an open enum has no value for.
    const FieldDescriptor* const beside = type.FindFieldByName(absl::StrCat(key, kNameBeside));
    if (beside == nullptr) return CannotHold(*field, value.text);
    Put(value.text, *beside, message);
  }
  return absl::OkStatus();
}

YamlNode TreeOf(const Message& message, const std::string& path, Violations& violations);

// The value of a field, or item `i` of a list; for a single value, i is -1.
YamlNode ValueOf(const Message& message, const FieldDescriptor& field, int i,
                 const std::string& path, Violations& violations) {
  const Reflection& reflection = *message.GetReflection();
  if (field.message_type() != nullptr) {
    return TreeOf(i < 0 ? reflection.GetMessage(message, &field)
                        : reflection.GetRepeatedMessage(message, &field, i),
                  path, violations);
  }
  YamlNode node{.kind = YamlNode::Kind::kScalar};
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    node.text = i < 0 ? reflection.GetString(message, &field)
                      : reflection.GetRepeatedString(message, &field, i);
  } else {
    google::protobuf::TextFormat::PrintFieldValueToString(message, &field, i, &node.text);
  }
  return node;
}

YamlNode TreeOf(const Message& message, const std::string& path, Violations& violations) {
  const Reflection& reflection = *message.GetReflection();
  const std::string prefix = absl::StrCat(path, path.empty() ? "" : ".");
  const auto& unknown = reflection.GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); ++i) {
    violations.Add({.field = absl::StrCat(prefix, "#", unknown.field(i).number()),
                    .wanted = "a field of JobSpec",
                    .found = "a field that this controller does not know",
                    .note = "is the client newer than the controller?"});
  }
  YamlNode node{.kind = YamlNode::Kind::kMapping};
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* const field : fields) {
    const std::string name = absl::StrCat(prefix, field->name());
    YamlNode value;
    if (!field->is_repeated()) {
      value = ValueOf(message, *field, -1, name, violations);
    } else {
      value.kind = field->is_map() ? YamlNode::Kind::kMapping : YamlNode::Kind::kSequence;
    }
    for (int i = 0; field->is_repeated() && i < reflection.FieldSize(message, field); ++i) {
      const std::string at = absl::StrCat(name, "[", i, "]");
      if (field->is_map()) {
        const Message& entry = reflection.GetRepeatedMessage(message, field, i);
        const Descriptor& pair = *field->message_type();
        value.fields.push_back({ValueOf(entry, *pair.map_key(), -1, at, violations).text,
                                ValueOf(entry, *pair.map_value(), -1, at, violations)});
      } else {
        value.items.push_back(ValueOf(message, *field, i, at, violations));
      }
    }
    node.fields.push_back({field->name(), std::move(value)});
  }
  return node;
}

}  // namespace

const FieldDescriptor* FieldOf(const Descriptor& message, const std::string& key) {
  if (message.map_value() != nullptr) return message.map_value();
  const FieldDescriptor* const own = message.FindFieldByName(key);
  const FieldDescriptor* const beside = message.FindFieldByName(kFieldsBeside);
  if (own != nullptr || beside == nullptr) return own;
  const std::vector<std::string> names = ArchitectureNames();
  const bool known = std::find(names.begin(), names.end(), key) != names.end();
  return known ? beside->message_type()->map_value() : nullptr;
}

absl::Status FillMessage(const YamlNode& node, google::protobuf::Message& message) {
  for (const auto& [key, value] : node.fields) {
    RETURN_IF_ERROR(FillField(key, value, message));
  }
  return absl::OkStatus();
}

YamlNode NodeOf(const google::protobuf::Message& message, Violations& violations) {
  YamlNode node = TreeOf(message, "", violations);
  if (const size_t count = CountNodes(node); count > kMaxYamlNodes) {
    violations.Add("spec", absl::StrCat("at most ", kMaxYamlNodes, " values"), count);
  }
  return node;
}

}  // namespace trainyard
