// JSON that others wrote: what nlohmann::json does not refuse by itself.

#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/string_view.h"

namespace trainyard {

inline constexpr int kMaxJsonDepth = 64;

// Discarded (is_discarded()) where the text is not JSON, or nests deeper than kMaxJsonDepth: to
// print or to copy a value takes stack for each of its levels.
template <typename Json = nlohmann::json>
Json ParseJson(absl::string_view text);

// Reads a whole number. False, and `out` is as it was: the value is another one, or T cannot hold
// it. By itself nlohmann::json takes 2^32 for the uint32_t 0, and 1e300 for anything.
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
