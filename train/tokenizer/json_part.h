// Reads an object of a JSON file, field by field, and refuses what was not asked for: a tokenizer
// with a setting that nobody has read would give other ids.

#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// All methods do nothing after the first error, which Done returns: INVALID_ARGUMENT with the path
// of the field, what was wanted, and what was found. Not thread-safe.
class JsonPart {
 public:
  // `json` must outlive the part. `path` is what errors say of it: "model", "decoder.decoders[1]".
  JsonPart(const nlohmann::json& json, std::string path);

  // A missing field, and null, is `if_absent`; without that, an error.
  std::string Text(const char* name, std::optional<std::string> if_absent = std::nullopt);
  bool Flag(const char* name, std::optional<bool> if_absent = std::nullopt);
  int64_t Whole(const char* name, std::optional<int64_t> if_absent = std::nullopt);
  // A list or an object. Null if the field is missing or null.
  const nlohmann::json* List(const char* name);
  const nlohmann::json* Object(const char* name);
  // Whatever the field has: null if it is missing or null.
  const nlohmann::json* Any(const char* name);
  // The field is known and changes no ids.
  void Ignore(const char* name) { seen_.insert(name); }

  // Notes an error about a field, unless there was one before.
  void Refuse(const char* name, absl::string_view wanted);
  std::string PathOf(const char* name) const;
  bool ok() const { return status_.ok(); }

  // Returns the first error; otherwise refuses fields that nobody has asked for.
  absl::Status Done();

 private:
  const nlohmann::json& json_;
  const std::string path_;
  std::set<std::string> seen_;
  absl::Status status_;
};

}  // namespace trainyard
