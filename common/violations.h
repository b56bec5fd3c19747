// Everything that is wrong with a user's input, field by field, so that one answer names all of it.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace trainyard {

struct FieldViolation {
  std::string field;        // Path in the spec: "batch.global", "model.overrides.heads".
  std::string description;  // What was wanted, what was found, the nearest legal value.
};

class Violations {
 public:
  void Add(absl::string_view field, absl::string_view description);
  bool empty() const { return violations_.empty(); }
  const std::vector<FieldViolation>& list() const { return violations_; }

  // OK when empty; otherwise INVALID_ARGUMENT whose message has one line a violation ("field:
  // description") and which FromStatus() turns back into the list, for the RPC edge.
  absl::Status ToStatus() const;
  static std::vector<FieldViolation> FromStatus(const absl::Status& status);

 private:
  std::vector<FieldViolation> violations_;
};

// How the description of a wrong value begins, everywhere: "wanted 1 to 8, found 9; nearest 8".
// Without a nearest legal value nothing is said of one.
std::string Wanted(absl::string_view wanted, const absl::AlphaNum& found,
                   const absl::AlphaNum& nearest = "");

// The description, with `nearest` for what it says of a nearest legal value.
std::string WithNearest(absl::string_view description, const absl::AlphaNum& nearest);

// The positive multiple of `unit` that is closest to `value` among those up to `most`; `unit` where
// there is none. All are at least 1 but `value`.
int64_t NearestMultiple(int64_t value, int64_t unit, int64_t most);

// The candidate closest to `found` by edit distance, or empty if none is near: "did you mean ...".
std::string NearestName(absl::string_view found, const std::vector<std::string>& candidates);

}  // namespace trainyard
