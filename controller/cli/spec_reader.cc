#include "controller/cli/spec_reader.h"

#include <google/protobuf/descriptor.h>

#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "controller/cli/spec_scalar.h"

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

std::string UnknownField(const std::string& key, const Descriptor& descriptor) {
  std::vector<std::string> known;
  for (int i = 0; i < descriptor.field_count(); ++i) known.push_back(descriptor.field(i)->name());
  if (const std::string ours = OurNameFor(key); !ours.empty()) {
    return absl::StrCat("unknown field; here it is ", ours);
  }
  if (const std::string nearest = NearestName(key, known); !nearest.empty()) {
    return absl::StrCat("unknown field; did you mean '", nearest, "'?");
  }
  if (known.empty()) return "unknown field; none is known here: {}";
  return absl::StrCat("unknown field; known here: ", absl::StrJoin(known, " "));
}

// PRECISION_ for trainyard.v1.Precision: the zero value's name without UNSPECIFIED.
std::string Prefix(const EnumDescriptor& descriptor) {
  return std::string(absl::StripSuffix(descriptor.value(0)->name(), "UNSPECIFIED"));
}

absl::StatusOr<int> ReadEnum(const YamlNode& node, const EnumDescriptor& descriptor) {
  const std::string prefix = Prefix(descriptor);
  const std::string name = std::string(absl::StripPrefix(node.text, prefix));
  std::vector<std::string> legal;
  for (int i = 1; i < descriptor.value_count(); ++i) {
    legal.push_back(std::string(absl::StripPrefix(descriptor.value(i)->name(), prefix)));
    if (legal.back() == name) return descriptor.value(i)->number();
  }
  const std::string nearest = NearestName(absl::AsciiStrToUpper(name), legal);
  return absl::InvalidArgumentError(
      absl::StrCat("wanted ", absl::StrJoin(legal, " or "), ", found '", node.text, "'",
                   nearest.empty() ? "" : absl::StrCat("; nearest ", nearest)));
}

absl::Status SetScalar(const YamlNode& node, const FieldDescriptor& field, Message& message) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32: {
      ASSIGN_OR_RETURN(const uint64_t value, ReadUnsigned(node.text, UINT32_MAX));
      reflection.SetUInt32(&message, &field, uint32_t(value));
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      ASSIGN_OR_RETURN(const uint64_t value, ReadUnsigned(node.text, UINT64_MAX));
      reflection.SetUInt64(&message, &field, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_INT32: {
      ASSIGN_OR_RETURN(const int32_t value, ReadInt32(node.text));
      reflection.SetInt32(&message, &field, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      ASSIGN_OR_RETURN(const double value, ReadDouble(node.text));
      reflection.SetDouble(&message, &field, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      ASSIGN_OR_RETURN(const bool value, ReadBool(node.text));
      reflection.SetBool(&message, &field, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      ASSIGN_OR_RETURN(const int value, ReadEnum(node, *field.enum_type()));
      reflection.SetEnumValue(&message, &field, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_STRING:
      reflection.SetString(&message, &field, node.text);
      return absl::OkStatus();
    default:
      CHECK(false) << "a spec cannot hold the type of " << field.full_name();
  }
}

}  // namespace

void SpecReader::ReadMap(const YamlNode& node, const std::string& path,
                         const FieldDescriptor& field, Message& message) {
  for (const auto& [key, value] : node.fields) {
    if (value.kind != YamlNode::Kind::kScalar) {
      violations_.Add(Join(path, key), absl::StrCat("wanted text, found ", Name(value.kind)));
      continue;
    }
    Message& pair = *message.GetReflection()->AddMessage(&message, &field);
    pair.GetReflection()->SetString(&pair, field.message_type()->map_key(), key);
    const absl::Status status = SetScalar(value, *field.message_type()->map_value(), pair);
    if (!status.ok()) violations_.Add(Join(path, key), status.message());
  }
}

void SpecReader::ReadField(const YamlNode& node, const std::string& path,
                           const FieldDescriptor& field, Message& message) {
  const bool wants_fields = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  const bool fits =
      wants_fields ? node.kind == YamlNode::Kind::kMapping || node.kind == YamlNode::Kind::kNull
                   : node.kind == YamlNode::Kind::kScalar;
  if (!fits) {
    violations_.Add(path, absl::StrCat("wanted ", wants_fields ? "a mapping" : "a single value",
                                       ", found ", Name(node.kind)));
  } else if (field.is_map()) {
    ReadMap(node, path, field, message);
  } else if (wants_fields) {
    Read(node, path, *message.GetReflection()->MutableMessage(&message, &field));
  } else if (const absl::Status status = SetScalar(node, field, message); !status.ok()) {
    violations_.Add(path, status.message());
  }
}

std::string SpecReader::ChosenMember(const YamlNode& node, const std::string& path,
                                     const OneofDescriptor& oneof) {
  std::vector<std::string> members;
  for (const auto& [key, value] : node.fields) {
    const FieldDescriptor* field = oneof.containing_type()->FindFieldByName(key);
    if (field != nullptr && field->containing_oneof() == &oneof) members.push_back(key);
  }
  if (members.empty()) return "";
  for (size_t i = members.size(); i-- > 0;) {
    if (set_.count(Join(path, members[i])) != 0) return members[i];
  }
  for (size_t i = 1; i < members.size(); ++i) {
    violations_.Add(Join(path, members[i]), absl::StrCat("wanted one ", oneof.name(), ", found '",
                                                         members[0], "' and this; keep one"));
  }
  return members[0];
}

void SpecReader::Read(const YamlNode& node, const std::string& path, Message& message) {
  const Descriptor& descriptor = *message.GetDescriptor();
  std::map<const OneofDescriptor*, std::string> chosen;
  for (int i = 0; i < descriptor.real_oneof_decl_count(); ++i) {
    const OneofDescriptor* oneof = descriptor.oneof_decl(i);
    chosen[oneof] = ChosenMember(node, path, *oneof);
  }
  for (const auto& [key, value] : node.fields) {
    const FieldDescriptor* field = descriptor.FindFieldByName(key);
    if (field == nullptr) {
      violations_.Add(Join(path, key), UnknownField(key, descriptor));
      continue;
    }
    const OneofDescriptor* oneof = field->real_containing_oneof();
    if (oneof != nullptr && chosen[oneof] != key) continue;
    ReadField(value, Join(path, key), *field, message);
  }
}

}  // namespace trainyard::cli
