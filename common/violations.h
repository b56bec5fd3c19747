// Collects everything that is wrong with a user's input, field by field, so that one answer names
// it all.

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

  // Returns OK if there are none. Otherwise INVALID_ARGUMENT, whose message has one line for each
  // violation ("field: description"). FromStatus() turns such a status back into the list, for the
  // RPC services.
  absl::Status ToStatus() const;
  static std::vector<FieldViolation> FromStatus(const absl::Status& status);

 private:
  std::vector<FieldViolation> violations_;
};

// Returns the beginning of a wrong value's description, as it is everywhere: "wanted 1 to 8, found
// 9; nearest 8". An empty `nearest` is left out.
std::string Wanted(absl::string_view wanted, const absl::AlphaNum& found,
                   const absl::AlphaNum& nearest = "");

// Returns the description with `nearest` in place of the nearest legal value that it names.
std::string WithNearest(absl::string_view description, const absl::AlphaNum& nearest);

// Returns the positive multiple of `unit` closest to `value`, and at most `most`. Returns `unit` if
// there is none. `unit` and `most` must be at least 1.
int64_t NearestMultiple(int64_t value, int64_t unit, int64_t most);

// Returns the candidate closest to `found` by edit distance, for "did you mean ..."; empty if none
// is near.
std::string NearestName(absl::string_view found, const std::vector<std::string>& candidates);

}  // namespace trainyard
