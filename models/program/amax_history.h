// What the histories of greatest values are called (kernels/products/amax_history.h), which a
// recipe with delayed scaling keeps for each product: by the name of the product's weight.

#pragma once

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace trainyard {

inline constexpr char kOfAmax[] = ".amax.";

// Of an operand: "input", "weight" or "output_gradient".
inline std::string NameOfHistory(absl::string_view weight, absl::string_view operand) {
  return absl::StrCat(weight, kOfAmax, operand);
}
inline bool IsNameOfHistory(absl::string_view parameter) {
  return absl::StrContains(parameter, kOfAmax);
}

}  // namespace trainyard
