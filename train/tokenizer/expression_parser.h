// Reads the text of an expression (expression.h says which ones are known) as a tree.

#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "train/tokenizer/code_points.h"

namespace trainyard {

inline constexpr uint32_t kUnlimited = std::numeric_limits<uint32_t>::max();

struct ExpressionTerm;
using ExpressionSequence = std::vector<ExpressionTerm>;

struct ExpressionTerm {
  enum class Kind : uint8_t { kSet, kGroup, kLook };
  enum class Repeat : uint8_t { kGreedy, kLazy, kPossessive };

  Kind kind = Kind::kSet;
  Repeat repeat = Repeat::kGreedy;
  bool negative = false;      // kLook: what is looked for must not be there.
  uint32_t min = 1, max = 1;  // How many times. kGroup: at most once. kLook: once.
  CodePointRanges set = {};   // kSet.
  std::vector<ExpressionSequence> options = {};  // kGroup and kLook: the alternatives.
};

// Returns the alternatives at the top. INVALID_ARGUMENT names the place and the part.
absl::StatusOr<std::vector<ExpressionSequence>> ParseExpression(absl::string_view pattern);

}  // namespace trainyard
