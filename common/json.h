// Reads JSON from others, with checks that nlohmann::json lacks, and writes JSON. Sources that read
// or write JSON take seconds less to compile with these functions than with the library's own.

#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

inline constexpr int kMaxJsonDepth = 64;

// Returns a discarded value (is_discarded()) if the text is not JSON or nests deeper than
// kMaxJsonDepth. Printing or copying a value takes stack for each level.
template <typename Json = nlohmann::json>
Json ParseJson(absl::string_view text);

// Does the same, and also refuses a text in which an object has a key twice. ParseJson takes the
// last value; another reader of the text might take the first. Errors: DATA_LOSS, which says what
// was found and, for a syntax error or a key that comes again, in which of several lines.
absl::StatusOr<nlohmann::json> ParseUniqueJson(absl::string_view text);

// Does the same for a text from Python, which writes numbers that are not finite as the bare words
// Infinity, -Infinity and NaN. They become objects, {"__float__": "Infinity"}, as later releases of
// `transformers` write them.
absl::StatusOr<nlohmann::json> ParsePythonJson(absl::string_view text);

// Returns the value as text, in lines that are indented by `indent` spaces a level, or in one line.
// Bytes that are no UTF-8 become U+FFFD.
template <typename Json>
std::string JsonText(const Json& value, int indent = -1);

// Reads a whole number. Returns false and leaves `out` alone if the value is not a whole number or
// does not fit T. nlohmann::json by itself would read 2^32 as the uint32_t 0, and accept 1e300.
template <typename Json, typename T>
bool ReadInteger(const Json& value, T& out) {
  const bool holds =
      value.is_number_unsigned()
          ? std::in_range<T>(value.template get<uint64_t>())
          : value.is_number_integer() && std::in_range<T>(value.template get<int64_t>());
  if (holds) out = value.template get<T>();
  return holds;
}

}  // namespace trainyard
