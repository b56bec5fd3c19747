// Intervals, written as messages describe them.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace trainyard {

// Whether the value lies in the interval, which must be written as in "0 <= x < 1", with two finite
// bounds. CHECKs that it is.
bool IsWithin(absl::string_view interval, double value);

// Returns the bound next to `value`, which is outside of an interval that is written as in
// "0 (none) <= x <= 0.95 (usual: 0.1)": for -1 it is "0", and for 2 "0.95". Returns "" if the bound
// is not legal itself ("0 < x"), and for other descriptions.
std::string NearestBound(absl::string_view interval, double value);

}  // namespace trainyard
