// Reads and writes double fields of Protocol Buffers messages by name, for tables that name each
// number once. If the message has no such field, the program has a bug and ends.

#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <optional>
#include <string>

#include "common/check.h"

namespace trainyard {

inline const google::protobuf::FieldDescriptor* NumberField(
    const google::protobuf::Message& message, const std::string& name) {
  const auto* field = message.GetDescriptor()->FindFieldByName(name);
  CHECK(field != nullptr && !field->is_repeated() &&
        field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE)
      << message.GetTypeName() << " has no floating field " << name;
  return field;
}

inline void SetNumber(google::protobuf::Message& message, const std::string& name, double value) {
  message.GetReflection()->SetDouble(&message, NumberField(message, name), value);
}
// An absent value leaves the field unset.
inline void SetNumber(google::protobuf::Message& message, const std::string& name,
                      const std::optional<double>& value) {
  if (value) SetNumber(message, name, *value);
}

inline void GetNumber(const google::protobuf::Message& message, const std::string& name,
                      double& value) {
  value = message.GetReflection()->GetDouble(message, NumberField(message, name));
}
inline void GetNumber(const google::protobuf::Message& message, const std::string& name,
                      std::optional<double>& value) {
  const auto* field = NumberField(message, name);
  if (message.GetReflection()->HasField(message, field)) GetNumber(message, name, value.emplace());
}

}  // namespace trainyard
