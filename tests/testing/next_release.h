// What a peer of a later release may send: fields, values and messages that this build does not
// know.

#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <vector>

namespace trainyard {

// Higher than any number that our files use.
inline constexpr int kNextNumber = 40'000;

// To the message and to every message that is set in it.
inline void AddUnknownFields(google::protobuf::Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      AddUnknownFields(*reflection.MutableMessage(&message, field));
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      AddUnknownFields(*reflection.MutableRepeatedMessage(&message, field, i));
    }
  }
  google::protobuf::UnknownFieldSet& unknown = *reflection.MutableUnknownFields(&message);
  unknown.AddVarint(kNextNumber, 1);
  unknown.AddLengthDelimited(kNextNumber + 1, "next");
}

}  // namespace trainyard
