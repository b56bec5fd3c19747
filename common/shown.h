// How errors quote what a file of a user says.

#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/text.h"

namespace trainyard {

inline constexpr size_t kShownBytes = 200;

// The text in quotes, cut to kShownBytes.
inline std::string Shown(absl::string_view text) {
  return absl::StrCat("\"", VisibleUtf8(CutUtf8(text, kShownBytes)), "\"");
}

}  // namespace trainyard
