// For tests that no field of a message is forgotten: fills all fields, and names those left empty.

#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace trainyard::testing {

// Every field gets a value of its own, a list one element, and an enum its first named value.
inline void FillMessage(google::protobuf::Message& message, int& next) {
  using Field = google::protobuf::FieldDescriptor;
  const auto* reflection = message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const Field* field = message.GetDescriptor()->field(i);
    const int value = ++next;
    switch (field->cpp_type()) {
      case Field::CPPTYPE_MESSAGE:
        FillMessage(field->is_repeated() ? *reflection->AddMessage(&message, field)
                                         : *reflection->MutableMessage(&message, field),
                    next);
        break;
      case Field::CPPTYPE_STRING:
        field->is_repeated() ? reflection->AddString(&message, field, absl::StrCat(value))
                             : reflection->SetString(&message, field, absl::StrCat(value));
        break;
      case Field::CPPTYPE_DOUBLE:
        reflection->SetDouble(&message, field, value + 0.5);
        break;
      case Field::CPPTYPE_UINT32:
        reflection->SetUInt32(&message, field, uint32_t(value));
        break;
      case Field::CPPTYPE_UINT64:
        reflection->SetUInt64(&message, field, uint64_t(value));
        break;
      case Field::CPPTYPE_INT32:  // Of a Timestamp: whole microseconds.
        reflection->SetInt32(&message, field, value * 1000);
        break;
      case Field::CPPTYPE_INT64:
        reflection->SetInt64(&message, field, value);
        break;
      case Field::CPPTYPE_BOOL:
        reflection->SetBool(&message, field, true);
        break;
      case Field::CPPTYPE_ENUM:
        reflection->SetEnumValue(&message, field, field->enum_type()->value(1)->number());
        break;
      default:
        break;
    }
  }
}

// Fields without a value, by path: "progress.mfu". Those of a message that is missing are not
// listed besides.
inline std::vector<std::string> EmptyFields(const google::protobuf::Message& message,
                                            const std::string& path = "") {
  std::vector<std::string> empty;
  const auto* reflection = message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const auto* field = message.GetDescriptor()->field(i);
    const std::string name = absl::StrCat(path, field->name());
    const bool there = field->is_repeated() ? reflection->FieldSize(message, field) > 0
                                            : reflection->HasField(message, field);
    if (!there) empty.push_back(name);
    if (!there || field->message_type() == nullptr || field->is_map()) continue;
    if (field->message_type()->full_name().starts_with("google.")) continue;
    for (const std::string& below :
         EmptyFields(field->is_repeated() ? reflection->GetRepeatedMessage(message, field, 0)
                                          : reflection->GetMessage(message, field),
                     name + ".")) {
      empty.push_back(below);
    }
  }
  return empty;
}

}  // namespace trainyard::testing
