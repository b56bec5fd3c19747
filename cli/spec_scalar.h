// Reads the values of a spec from their text. Absent: the text is not such a value. The check of
// specs (train/config/validate.h) then says which values are allowed.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard::cli {

std::optional<uint64_t> ReadUnsigned(absl::string_view text, uint64_t max);  // 1000, 1e3
std::optional<int32_t> ReadInt32(absl::string_view text);
std::optional<bool> ReadBool(absl::string_view text);  // true or false

}  // namespace trainyard::cli
