// Converts structs to and from Protocol Buffers messages, by the functions VisitFields that
// common/json_fields.h describes. A member is copied to and from the message's field of the same
// name. A member or a field that only one side has keeps its value. So a struct may have more than
// its message, and several structs may fill one message. A member whose type does not fit the field
// of its name ends the program.

#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/time/time.h"
#include "common/check.h"
#include "common/json_fields.h"
#include "common/text.h"

namespace trainyard {

// The next two functions turn a time before year 1 or after year 9999 into the nearest time within
// these years, because a message with another time could not be printed.
inline google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  using google::protobuf::util::TimeUtil;
  constexpr int64_t kMicros = 1'000'000;
  return TimeUtil::MicrosecondsToTimestamp(std::clamp(absl::ToUnixMicros(time),
                                                      TimeUtil::kTimestampMinSeconds * kMicros,
                                                      TimeUtil::kTimestampMaxSeconds * kMicros));
}

inline absl::Time FromTimestamp(const google::protobuf::Timestamp& time) {
  using google::protobuf::util::TimeUtil;
  const int64_t seconds = std::clamp<int64_t>(time.seconds(), TimeUtil::kTimestampMinSeconds,
                                              TimeUtil::kTimestampMaxSeconds);
  const int32_t nanos = std::clamp(time.nanos(), 0, 999'999'999);
  return absl::FromUnixSeconds(seconds) + absl::Nanoseconds(nanos);
}

// Reads a message into a struct, or writes the message.
template <bool reads>
class MessageVisitor {
 public:
  static constexpr bool kReads = reads;
  using Message =
      std::conditional_t<reads, const google::protobuf::Message, google::protobuf::Message>;
  using Field = google::protobuf::FieldDescriptor;
  using Reflection = google::protobuf::Reflection;

  explicit MessageVisitor(Message& message)
      : message_(message), reflection_(*message.GetReflection()) {}

  // What is written may be constant, or computed here.
  template <typename T>
  void operator()(const char* name, T&& value) {
    using Value = std::remove_cvref_t<T>;
    static_assert(!reads || std::is_same_v<T, Value&>);
    const Field* const field = message_.GetDescriptor()->FindFieldByName(name);
    if (field == nullptr) return;
    Value& member = const_cast<Value&>(value);  // VisitFields also reads.
    if constexpr (!IsOptional<Value>) {
      Visit(*field, member);
    } else if constexpr (reads) {
      if (reflection_.HasField(message_, field)) Visit(*field, member.emplace());
    } else {
      if (member) Visit(*field, *member);
    }
  }
  template <typename T>
  void Later(const char* name, T& value) {
    (*this)(name, value);
  }
  void Whole(const char* name, auto& value) { (*this)(name, value); }
  void ZeroIfAbsent(const char* name, auto& value) { (*this)(name, value); }
  template <typename T>
  void Seldom(const char* name, T& value) {
    (*this)(name, value);
  }
  void Bytes(const char* name, std::string& value) { (*this)(name, value); }
  template <typename T>
  void Group(const char* name, T& value) {
    (*this)(name, value);
  }
  void Version(int /*wanted*/) {}  // Messages change without one.
  // Calls visit(visitor) with a visitor of the message in this field.
  template <typename F>
  void Nested(const char* name, F&& visit) {
    const Field* const field = message_.GetDescriptor()->FindFieldByName(name);
    CHECK(field != nullptr) << name;
    Enter(*field, visit);
  }
  template <typename A, typename B>
  void Pair(const char* a_name, A& a, const char* b_name, B& b) {
    (*this)(a_name, a), (*this)(b_name, b);
  }

 private:
  template <typename T>
  void Visit(const Field& field, T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      Number(field, value);
    } else if constexpr (HasFields<MessageVisitor, T>) {
      Enter(field, [&](auto& visitor) { VisitFields(visitor, value); });
    } else if constexpr (std::is_same_v<T, std::string> && reads) {
      value = reflection_.GetString(message_, &field);
    } else if constexpr (std::is_same_v<T, std::string>) {
      reflection_.SetString(&message_, &field, Text(field, value));
    } else if constexpr (std::is_same_v<T, absl::Time> && reads) {
      google::protobuf::Timestamp time;
      time.CopyFrom(reflection_.GetMessage(message_, &field));
      value = FromTimestamp(time);
    } else if constexpr (std::is_same_v<T, absl::Time>) {
      reflection_.MutableMessage(&message_, &field)->CopyFrom(ToTimestamp(value));
    } else {
      List(field, value);
    }
  }

  template <typename T>
  void Number(const Field& field, T& value) {
    const auto visit = [&](auto get, auto set) {
      if constexpr (reads) {
        value = static_cast<T>((reflection_.*get)(message_, &field));
      } else {
        using Wire = decltype((reflection_.*get)(message_, &field));
        (reflection_.*set)(&message_, &field, static_cast<Wire>(value));
      }
    };
    switch (field.cpp_type()) {
      case Field::CPPTYPE_BOOL:
        return visit(&Reflection::GetBool, &Reflection::SetBool);
      case Field::CPPTYPE_INT32:
        return visit(&Reflection::GetInt32, &Reflection::SetInt32);
      case Field::CPPTYPE_UINT32:
        return visit(&Reflection::GetUInt32, &Reflection::SetUInt32);
      case Field::CPPTYPE_UINT64:
        return visit(&Reflection::GetUInt64, &Reflection::SetUInt64);
      case Field::CPPTYPE_DOUBLE:
        return visit(&Reflection::GetDouble, &Reflection::SetDouble);
      case Field::CPPTYPE_ENUM:
        return visit(&Reflection::GetEnumValue, &Reflection::SetEnumValue);
      default:
        CHECK(false) << field.full_name() << " is a " << field.cpp_type_name();
    }
  }

  template <typename F>
  void Enter(const Field& field, F&& visit) {
    if constexpr (reads) {
      MessageVisitor visitor(reflection_.GetMessage(message_, &field));
      visit(visitor);
    } else {
      MessageVisitor visitor(*reflection_.MutableMessage(&message_, &field));
      visit(visitor);
    }
  }

  // The elements are texts or structs.
  template <typename T>
  void List(const Field& field, T& values) {
    using Element = typename T::value_type;
    constexpr bool texts = std::is_same_v<Element, std::string>;
    if constexpr (!texts && !HasFields<MessageVisitor, Element>) {
      CHECK(false) << field.full_name() << " is a list of other elements than the member";
    } else if constexpr (reads) {
      for (int i = 0; i < reflection_.FieldSize(message_, &field); ++i) {
        Element element{};
        if constexpr (texts) {
          element = reflection_.GetRepeatedString(message_, &field, i);
        } else {
          MessageVisitor visitor(reflection_.GetRepeatedMessage(message_, &field, i));
          VisitFields(visitor, element);
        }
        values.insert(values.end(), std::move(element));
      }
    } else {
      for (auto& element : values) {
        if constexpr (texts) {
          reflection_.AddString(&message_, &field, Text(field, element));
        } else {
          MessageVisitor visitor(*reflection_.AddMessage(&message_, &field));
          VisitFields(visitor, element);
        }
      }
    }
  }

  // A message with text that is not UTF-8 could not be read.
  static std::string Text(const Field& field, const std::string& value) {
    return field.type() == Field::TYPE_BYTES ? value : ValidUtf8(value);
  }

  Message& message_;
  const Reflection& reflection_;
};

template <typename T>
void WriteMessage(const T& value, google::protobuf::Message& message) {
  MessageVisitor<false> writer(message);
  VisitFields(writer, const_cast<T&>(value));  // Mutable only because VisitFields also reads.
}

// Writes what the variant holds into a message that is a field of `message`. `names` has the field
// of each alternative.
template <typename... T>
void WriteOneOf(const std::variant<T...>& value, const std::array<const char*, sizeof...(T)>& names,
                google::protobuf::Message& message) {
  const auto* const field = message.GetDescriptor()->FindFieldByName(names[value.index()]);
  CHECK(field != nullptr) << names[value.index()];
  google::protobuf::Message& held = *message.GetReflection()->MutableMessage(&message, field);
  std::visit([&](const auto& alternative) { WriteMessage(alternative, held); }, value);
}

// Neither function checks the values, which the sender chose. The caller must check them.
template <typename T>
void ReadMessage(const google::protobuf::Message& message, T& value) {
  MessageVisitor<true> reader(message);
  VisitFields(reader, value);
}
template <typename T>
T ReadMessage(const google::protobuf::Message& message) {
  T value;
  ReadMessage(message, value);
  return value;
}

}  // namespace trainyard
