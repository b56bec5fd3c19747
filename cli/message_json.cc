#include "cli/message_json.h"

#include <google/protobuf/util/json_util.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/format.h"
#include "common/check.h"

namespace trainyard::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::ordered_json;

// Returns the value of a field; of a repeated field, the item at `index`.
ordered_json Value(const Message& message, const FieldDescriptor& field, int index = 0) {
  const Reflection& reflection = *message.GetReflection();
  const auto get = [&](auto single, auto item) {
    return field.is_repeated() ? (reflection.*item)(message, &field, index)
                               : (reflection.*single)(message, &field);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return get(&Reflection::GetFloat, &Reflection::GetRepeatedFloat);
    case FieldDescriptor::CPPTYPE_BOOL:
      return get(&Reflection::GetBool, &Reflection::GetRepeatedBool);
    case FieldDescriptor::CPPTYPE_ENUM:
      return get(&Reflection::GetEnum, &Reflection::GetRepeatedEnum)->name();
    case FieldDescriptor::CPPTYPE_STRING:
      return get(&Reflection::GetString, &Reflection::GetRepeatedString);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return PlainJson(field.is_repeated() ? reflection.GetRepeatedMessage(message, &field, index)
                                           : reflection.GetMessage(message, &field));
  }
  CHECK(false) << field.full_name();
}

ordered_json Map(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  const auto& entry = *field.message_type();
  std::map<std::string, ordered_json> sorted;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const Message& item = reflection.GetRepeatedMessage(message, &field, i);
    sorted[item.GetReflection()->GetString(item, entry.map_key())] =
        Value(item, *entry.map_value());
  }
  return ordered_json(sorted);
}

ordered_json Repeated(const Message& message, const FieldDescriptor& field) {
  ordered_json array = ordered_json::array();
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    array.push_back(Value(message, field, i));
  }
  return array;
}

}  // namespace

std::string ProtobufJson(const Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  CHECK(status.ok())
      // This cannot fail: our messages have no Any, and their texts are UTF-8.
      << status.ToString();
  return text;
}

ordered_json PlainJson(const Message& message) {
  const auto& descriptor = *message.GetDescriptor();
  if (descriptor.full_name() == "google.protobuf.Timestamp") {
    google::protobuf::Timestamp timestamp;
    timestamp.CopyFrom(message);
    return FormatTimestamp(timestamp);
  }
  ordered_json object = ordered_json::object();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (field.is_map()) {
      object[field.name()] = Map(message, field);
    } else if (field.is_repeated()) {
      object[field.name()] = Repeated(message, field);
    } else if (!field.has_presence() || message.GetReflection()->HasField(message, &field)) {
      object[field.name()] = Value(message, field);
    }
  }
  return object;
}

}  // namespace trainyard::cli
