// Lists of patterns of names in a job spec (name_pattern.h): what is checked of each list.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/violations.h"

namespace trainyard {

inline constexpr size_t kMaxPatterns = 64;

// Returns whether the patterns themselves are legal. Otherwise adds violations: there are too many,
// or one is empty or too long.
bool CheckPatterns(const std::vector<std::string>& patterns, absl::string_view field,
                   Violations& violations);

// Returns the nearest name by edits if one is near and `by_edits` allows it. Otherwise returns the
// first of the names that share the longest beginning with the pattern. `names` is not empty.
std::string NearestOfNames(absl::string_view pattern, const std::vector<std::string>& names,
                           bool by_edits);

}  // namespace trainyard
