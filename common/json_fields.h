// Converts structs to and from JSON objects, with one declaration for both directions. A struct T
// has a function
//
//   template <typename V>
//   static void VisitFields(V& v, T& t) { v("name", t.name), v("size", t.size); }
//
// in the namespace of T, which WriteFields and ReadFields call. Members are numbers, enums, texts,
// times (microseconds since 1970), optionals, containers of these, and structs with such a
// function. If a function reads a member in another form, it must assign to the member only if
// V::kReads is true, because a struct that is written may be const. nlohmann::json prints a number
// that is not finite as null, and null is read as NaN.

#pragma once

#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/json.h"

namespace trainyard {

inline constexpr int64_t kMostWhole = int64_t{1} << 62;  // Limit of numbers that are never < 0.

template <typename V, typename T>
concept HasFields = requires(V& v, T& t) {
  VisitFields(v, t);
};
template <typename T>
concept IsMap = requires {
  typename T::mapped_type;
};
template <typename T>
concept IsOptional = requires(const T& t) {
  t.has_value();
};

template <typename Json>
class JsonWriter {
 public:
  static constexpr bool kReads = false;
  explicit JsonWriter(Json& json) : json_(json) {}

  template <typename T>
  void operator()(const char* name, const T& value) {
    if constexpr (IsOptional<T>) {
      if (value) Write(json_[name], *value);
    } else {
      Write(json_[name], value);
    }
  }
  template <typename T>
  void Later(const char* name, const T& value) {
    (*this)(name, value);
  }
  template <typename T>
  void Seldom(const char* name, const T& value) {
    if (value != T()) (*this)(name, value);
  }
  void ZeroIfAbsent(const char* name, const std::optional<double>& value) {
    (*this)(name, value.value_or(0));
  }
  void Whole(const char* name, int64_t value) { json_[name] = value; }
  void LaterWhole(const char* name, int64_t value) { json_[name] = value; }
  void Object(const char* name, const Json& value) { json_[name] = value; }
  void Bytes(const char* name, const std::string& value) {
    json_[name] = absl::Base64Escape(value);
  }
  template <typename Enum>
  void Named(const char* name, Enum value, std::initializer_list<Enum> /*all*/) {
    json_[name] = Name(value);
  }
  template <typename A, typename B>
  void Pair(const char* /*name*/, const A& a, const char* /*name*/, const B& b) {
    json_ = Json::array({a, b});
  }
  void Wholes(const std::vector<int64_t>& values, size_t /*most*/) { json_ = values; }
  template <typename T>
  void Group(const char* /*name*/, const T& value) {
    VisitFields(*this, const_cast<T&>(value));
  }
  void Version(int wanted) { json_["version"] = wanted; }

  template <typename T>
  static void Write(Json& json, const T& value) {
    if constexpr (HasFields<JsonWriter, T>) {
      JsonWriter writer(json);
      VisitFields(writer, const_cast<T&>(value));  // VisitFields also reads.
    } else if constexpr (std::is_enum_v<T>) {
      json = std::underlying_type_t<T>(value);
    } else if constexpr (std::is_same_v<T, absl::Time>) {
      json = absl::ToUnixMicros(value);
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      json = value;
    } else if constexpr (IsMap<T>) {
      json = Json::object();
      for (const auto& [key, element] : value) Write(json[key], element);
    } else {
      json = Json::array();
      for (const auto& element : value) Write(json.emplace_back(), element);
    }
  }

 private:
  Json& json_;
};

// Stops at the first field that is wrong. `status` then is INVALID_ARGUMENT, with the path of the
// field and what was wanted there.
template <typename Json>
class JsonReader {
 public:
  static constexpr bool kReads = true;
  JsonReader(const Json& json, std::string path, absl::Status& status)
      : json_(json), path_(std::move(path)), status_(status) {}

  template <typename T>
  void operator()(const char* name, T& value) {
    if constexpr (IsOptional<T>) {
      if (Has(name)) Read(json_.at(name), name, value.emplace());
    } else if (const Json* field = Find(name)) {
      Read(*field, name, value);
    }
  }
  // Visits a field that earlier releases did not write. If the field is absent, the member keeps
  // its value.
  template <typename T>
  void Later(const char* name, T& value) {
    if (Has(name)) (*this)(name, value);
  }
  // Visits a field that most structs do without. It is written only if it is not T(), which is what
  // an absent field is read as. Short rows make fast submits: SQLite keeps a row of more than 2,042
  // bytes on a page of its own.
  template <typename T>
  void Seldom(const char* name, T& value) {
    value = T();
    Later(name, value);
  }
  // Visits a field that can be absent, and that earlier releases want as a number: 0 is none.
  void ZeroIfAbsent(const char* name, std::optional<double>& value) {
    double number = 0;
    (*this)(name, number);
    value = number == 0 ? std::nullopt : std::optional(number);
  }
  // The value must be from 0 to kMostWhole.
  void Whole(const char* name, int64_t& value) {
    if (const Json* field = Find(name)) ReadWhole(*field, name, value);
  }
  void LaterWhole(const char* name, int64_t& value) {
    if (Has(name)) Whole(name, value);
  }
  // Takes an object as it is.
  void Object(const char* name, Json& value) {
    const Json* field = Find(name);
    if (field != nullptr && Expect(field->is_object(), name, "an object")) value = *field;
  }
  // The text is Base64.
  void Bytes(const char* name, std::string& value) {
    std::string text;
    (*this)(name, text);
    if (status_.ok()) Expect(absl::Base64Unescape(text, &value), name, "base64");
  }
  // The field is an enum, written as the name of its value.
  template <typename Enum>
  void Named(const char* name, Enum& value, std::initializer_list<Enum> all) {
    std::string text, names;
    (*this)(name, text);
    for (const Enum one : all) {
      absl::StrAppend(&names, names.empty() ? "" : ", ", Name(one));
      if (status_.ok() && text == Name(one)) {
        value = one;
        return;
      }
    }
    Expect(false, name, absl::StrCat("one of ", names));
  }
  // The struct is written as a list of two numbers.
  template <typename A, typename B>
  void Pair(const char* /*name*/, A& a, const char* /*name*/, B& b) {
    if (!Expect(json_.is_array() && json_.size() == 2, "", "a list of two numbers")) return;
    Read(json_[0], "", a);
    Read(json_[1], "", b);
  }
  // The struct is written as a list of numbers, which Whole reads.
  void Wholes(std::vector<int64_t>& values, size_t most) {
    values.clear();
    const bool list = json_.is_array() && json_.size() <= most;
    if (!Expect(list, "", absl::StrCat("a list of at most ", most, " numbers"))) return;
    for (const Json& element : json_) ReadWhole(element, "", values.emplace_back());
  }
  // The struct's fields stand among those of the object. In a message they have a field of their
  // own.
  template <typename T>
  void Group(const char* /*name*/, T& value) {
    VisitFields(*this, value);
  }
  // The object must be of this version.
  void Version(int wanted) {
    const auto found = json_.find("version");
    const bool right = found != json_.end() && found->is_number_integer() && *found == wanted;
    Expect(right, "",
           absl::StrCat("version ", wanted, ", found ",
                        found == json_.end() ? "none" : found->dump().substr(0, 20)));
  }
  // Returns `holds`. If this is false, the field is wrong.
  bool Expect(bool holds, const char* name, absl::string_view wanted) {
    if (!holds && status_.ok()) {
      const std::string field = Below(name);
      status_ = absl::InvalidArgumentError(
          absl::StrCat(field, field.empty() ? "wanted " : ": wanted ", wanted));
    }
    return holds;
  }
  // Reads a value of any kind that the header lists.
  template <typename T>
  void Read(const Json& json, const char* name, T& value) {
    if constexpr (HasFields<JsonReader, T>) {
      JsonReader reader(json, Below(name), status_);
      VisitFields(reader, value);
    } else if constexpr (std::is_same_v<T, bool>) {
      if (Expect(json.is_boolean(), name, "true or false")) value = json.template get<bool>();
    } else if constexpr (std::is_enum_v<T>) {
      auto number = std::underlying_type_t<T>();
      Read(json, name, number);
      value = T(number);
    } else if constexpr (std::is_integral_v<T>) {
      Expect(
          ReadInteger(json, value), name,
          std::is_unsigned_v<T> ? "a whole number from 0 that fits" : "a whole number that fits");
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!Expect(json.is_number() || json.is_null(), name, "a number or null")) return;
      value = json.is_null() ? std::numeric_limits<T>::quiet_NaN() : json.template get<T>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (Expect(json.is_string(), name, "a text")) value = json.template get<std::string>();
    } else if constexpr (std::is_same_v<T, absl::Time>) {
      int64_t micros = 0;
      Read(json, name, micros);
      value = absl::FromUnixMicros(micros);
    } else if constexpr (IsMap<T>) {
      if (!Expect(json.is_object(), name, "an object")) return;
      for (const auto& [key, element] : json.items()) Read(element, name, value[key]);
    } else {
      if (!Expect(json.is_array(), name, "a list")) return;
      for (const Json& element : json) {
        typename T::value_type one{};
        Read(element, absl::StrCat(name, "[", value.size(), "]").c_str(), one);
        value.insert(value.end(), std::move(one));
      }
    }
  }

 private:
  bool Has(const char* name) const {
    return status_.ok() && json_.is_object() && json_.contains(name);
  }
  const Json* Find(const char* name) {
    if (!Expect(json_.is_object(), "", "an object")) return nullptr;
    const auto found = json_.find(name);
    return Expect(found != json_.end(), name, "a value, found none") ? &*found : nullptr;
  }
  void ReadWhole(const Json& json, const char* name, int64_t& value) {
    int64_t number = 0;
    const bool legal = ReadInteger(json, number) && number >= 0 && number <= kMostWhole;
    if (Expect(legal, name, "a whole number from 0 to 2^62")) value = number;
  }
  std::string Below(const char* name) const {
    return path_.empty() || *name == 0 ? absl::StrCat(path_, name) : absl::StrCat(path_, ".", name);
  }

  const Json& json_;
  const std::string path_;
  absl::Status& status_;
};

template <typename Json, typename T>
void WriteFields(Json& json, const T& value) {
  JsonWriter<Json>::Write(json, value);
}

// Reads a struct or a list. Errors are those of JsonReader. After an error, the fields that were
// read before it have their new values.
template <typename Json, typename T>
absl::Status ReadFields(const Json& json, T& value, absl::string_view path = "") {
  absl::Status status;
  JsonReader<Json>(json, "", status).Read(json, std::string(path).c_str(), value);
  return status;
}

}  // namespace trainyard
