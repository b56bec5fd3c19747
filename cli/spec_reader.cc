#include "cli/spec_reader.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/check.h"
#include "train/config/aliases.h"
#include "train/config/fields.h"
#include "train/config/read_model.h"

namespace trainyard::cli {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

std::string Join(const std::string& path, const std::string& key) {
  return path.empty() ? key : absl::StrCat(path, ".", key);
}

// The map of fields that only one family of models has. Null for other messages.
const FieldDescriptor* MapBeside(const Descriptor& descriptor) {
  const FieldDescriptor* const field = descriptor.FindFieldByName(kFieldsBeside);
  return field != nullptr && field->is_map() ? field : nullptr;
}

std::string UnknownField(const std::string& key, const Descriptor& descriptor) {
  std::vector<std::string> known;
  const FieldDescriptor* const beside = MapBeside(descriptor);
  for (int i = 0; i < descriptor.field_count(); ++i) {
    if (descriptor.field(i) != beside) known.push_back(descriptor.field(i)->name());
  }
  if (beside != nullptr) {
    for (const std::string& name : ArchitectureNames()) {
      if (descriptor.FindFieldByName(name) == nullptr) known.push_back(name);
    }
  }
  if (const std::string ours = OurNameFor(key); !ours.empty()) {
    return absl::StrCat("unknown field; here it is ", ours);
  }
  if (const std::string nearest = NearestName(key, known); !nearest.empty()) {
    return absl::StrCat("unknown field; did you mean '", nearest, "'?");
  }
  if (known.empty()) return "unknown field; none is known here: {}";
  return absl::StrCat("unknown field; known here: ", absl::StrJoin(known, " "));
}

std::string Found(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar ? Quoted(node.text) : Name(node.kind);
}

// PRECISION_ for trainyard.v1.Precision: the zero value's name without UNSPECIFIED.
std::string Prefix(const EnumDescriptor& descriptor) {
  return std::string(absl::StripSuffix(descriptor.value(0)->name(), "UNSPECIFIED"));
}

// With or without the prefix, but UNSPECIFIED with it: only programs write that.
std::optional<int> ReadEnum(const std::string& text, const EnumDescriptor& descriptor) {
  const auto* value = descriptor.FindValueByName(text);
  if (value == nullptr) value = descriptor.FindValueByName(Prefix(descriptor) + text);
  if (value == nullptr || (value->number() == 0 && text != value->name())) return std::nullopt;
  return value->number();
}

template <typename T>
std::optional<T> ReadInteger(const std::string& text) {
  T value = 0;
  if (absl::SimpleAtoi(text, &value)) return value;
  const std::optional<int64_t> whole = ReadWhole(text);
  return whole && std::in_range<T>(*whole) ? std::optional(T(*whole)) : std::nullopt;
}

std::optional<bool> ReadBool(const std::string& text) {
  return text == "true" || text == "false" ? std::optional(text == "true") : std::nullopt;
}

// Whether the text is a value of the field, which the message then has; of a repeated one, as its
// last item.
bool SetScalar(const std::string& text, const FieldDescriptor& field, Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const auto set = [&](const auto& value, auto setter, decltype(setter) adder) {
    if (value) (reflection.*(field.is_repeated() ? adder : setter))(&message, &field, *value);
    return value.has_value();
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return set(ReadInteger<uint32_t>(text), &Reflection::SetUInt32, &Reflection::AddUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return set(ReadInteger<uint64_t>(text), &Reflection::SetUInt64, &Reflection::AddUInt64);
    case FieldDescriptor::CPPTYPE_INT32:
      return set(ReadInteger<int32_t>(text), &Reflection::SetInt32, &Reflection::AddInt32);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return set(ReadNumber(text), &Reflection::SetDouble, &Reflection::AddDouble);
    case FieldDescriptor::CPPTYPE_BOOL:
      return set(ReadBool(text), &Reflection::SetBool, &Reflection::AddBool);
    case FieldDescriptor::CPPTYPE_ENUM:
      return set(ReadEnum(text, *field.enum_type()), &Reflection::SetEnumValue,
                 &Reflection::AddEnumValue);
    case FieldDescriptor::CPPTYPE_STRING:
      return set(std::optional(text), &Reflection::SetString, &Reflection::AddString);
    default:
      CHECK(false) << "a spec cannot hold the type of " << field.full_name();
  }
}

// Sets the text field beside an enum field that is open on the wire (EnumField in fields.h).
bool SetName(const std::string& text, const FieldDescriptor& field, Message& message) {
  const FieldDescriptor* const name =
      message.GetDescriptor()->FindFieldByName(absl::StrCat(field.name(), kNameBeside));
  return field.enum_type() != nullptr && name != nullptr && SetScalar(text, *name, message);
}

bool HasKey(const Message& message, const FieldDescriptor& map, const std::string& key) {
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < reflection.FieldSize(message, &map); ++i) {
    const Message& pair = reflection.GetRepeatedMessage(message, &map, i);
    if (pair.GetReflection()->GetString(pair, map.message_type()->map_key()) == key) return true;
  }
  return false;
}

}  // namespace

bool IsBeside(const std::string& key, const Descriptor& message) {
  if (MapBeside(message) == nullptr || message.FindFieldByName(key) != nullptr) return false;
  const std::vector<std::string> names = ArchitectureNames();
  return std::count(names.begin(), names.end(), key) > 0;
}

void SpecReader::AddUnreadable(const std::string& path, absl::string_view found) {
  for (const FieldViolation& violation : checked_.list()) {
    if (violation.field == path) return violations_.Add(path, violation.description);
  }
  violations_.Add(path, Wanted("what this field can be", found));
}

bool SpecReader::ReadBeside(const YamlField& field, const std::string& path, Message& message) {
  if (!IsBeside(field.key, *message.GetDescriptor())) return false;
  if (field.value.kind != YamlNode::Kind::kScalar) {
    violations_.Add(path, Wanted("a single value", Name(field.value.kind)));
    return true;
  }
  AddToMap(field, path, *MapBeside(*message.GetDescriptor()), message);
  return true;
}

void SpecReader::AddToMap(const YamlField& entry, const std::string& path,
                          const FieldDescriptor& map, Message& message) {
  const bool beside = &map == MapBeside(*message.GetDescriptor());
  if (beside && HasKey(message, map, entry.key)) {  // Other maps are one mapping of the spec.
    violations_.Add(path, Wanted(absl::StrCat("the field once, here or in ", map.name()), "both"));
    return;
  }
  Message& pair = *message.GetReflection()->AddMessage(&message, &map);
  pair.GetReflection()->SetString(&pair, map.message_type()->map_key(), entry.key);
  if (!SetScalar(entry.value.text, *map.message_type()->map_value(), pair)) {
    AddUnreadable(path, Found(entry.value));
  }
}

void SpecReader::ReadMap(const YamlNode& node, const std::string& path,
                         const FieldDescriptor& field, Message& message) {
  for (const auto& [key, value] : node.fields) {
    if (value.kind != YamlNode::Kind::kScalar) {
      violations_.Add(Join(path, key), Wanted("text", Name(value.kind)));
      continue;
    }
    AddToMap({key, value}, Join(path, key), field, message);
  }
}

void SpecReader::ReadList(const YamlNode& node, const std::string& path,
                          const FieldDescriptor& field, Message& message) {
  for (size_t i = 0; i < node.items.size(); ++i) {
    const YamlNode& item = node.items[i];
    const bool scalar = item.kind == YamlNode::Kind::kScalar;
    if (!scalar || !SetScalar(item.text, field, message)) {
      AddUnreadable(absl::StrCat(path, "[", i, "]"), Found(item));
    }
  }
}

void SpecReader::ReadField(const YamlNode& node, const std::string& path,
                           const FieldDescriptor& field, Message& message) {
  const bool absent = node.kind == YamlNode::Kind::kNull;
  if (field.is_repeated() && !field.is_map()) {
    if (!absent && node.kind != YamlNode::Kind::kSequence) return AddUnreadable(path, Found(node));
    return ReadList(node, path, field, message);
  }
  const bool wants_fields = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  const bool fits = wants_fields ? absent || node.kind == YamlNode::Kind::kMapping
                                 : node.kind == YamlNode::Kind::kScalar;
  if (!fits) {
    violations_.Add(path, Wanted(wants_fields ? "a mapping" : "a single value", Name(node.kind)));
  } else if (field.is_map()) {
    ReadMap(node, path, field, message);
  } else if (wants_fields) {
    Read(node, path, *message.GetReflection()->MutableMessage(&message, &field));
  } else if (!SetScalar(node.text, field, message) && !SetName(node.text, field, message)) {
    AddUnreadable(path, Found(node));
  }
}

void SpecReader::Read(const YamlNode& node, const std::string& path, Message& message) {
  const Descriptor& descriptor = *message.GetDescriptor();
  std::set<const OneofDescriptor*> chosen;
  for (const auto& [key, value] : node.fields) {
    const FieldDescriptor* field = descriptor.FindFieldByName(key);
    if (field == nullptr) {
      if (ReadBeside({key, value}, Join(path, key), message)) continue;
      violations_.Add(Join(path, key), UnknownField(key, descriptor));
      continue;
    }
    const OneofDescriptor* oneof = field->real_containing_oneof();
    if (oneof != nullptr && !chosen.insert(oneof).second) {
      AddUnreadable(path, absl::StrCat("a second ", oneof->name()));
    }
    ReadField(value, Join(path, key), *field, message);
  }
}

}  // namespace trainyard::cli
