// Reads the values of a spec from their text. Absent: the text is no such value. The check of specs
// then says what a value would be (train/config/validate.h).

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
