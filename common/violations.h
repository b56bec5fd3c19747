// Collects everything that is wrong with a user's input, field by field, so that one answer names
// it all.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/interval.h"

namespace trainyard {

// Members that say nothing are empty.
struct FieldViolation {
  std::string field = {};    // Path in the spec: "batch.global", "model.overrides.heads".
  std::string wanted = {};   // The legal values: "1 to 8".
  std::string found = {};    // The value, or "none".
  std::string nearest = {};  // A legal value near the one found.
  std::string note = {};     // What else there is to say; without `wanted`, all of it.

  std::string Description() const;  // "wanted 1 to 8, found 9; nearest 8; note"
  std::string ToString() const;     // "field: description"
};

class Violations {
 public:
  void Add(FieldViolation violation) { list_.push_back(std::move(violation)); }
  void Add(absl::string_view field, const absl::AlphaNum& wanted, const absl::AlphaNum& found = "",
           const absl::AlphaNum& nearest = "");
  void AddAll(const Violations& others);
  // Return whether the value is legal. Otherwise add a violation.
  bool Check(absl::string_view field, int64_t value, const WholeNumbers& legal);
  bool Check(absl::string_view field, double value, const Interval& legal);
  bool empty() const { return list_.empty(); }
  const std::vector<FieldViolation>& list() const { return list_; }

  // Returns OK if there are none. Otherwise INVALID_ARGUMENT, whose message has one line for each
  // violation. FromStatus() returns the violations of such a status.
  absl::Status ToStatus() const;
  static std::vector<FieldViolation> FromStatus(const absl::Status& status);

 private:
  std::vector<FieldViolation> list_;
};

// Returns the status of one violation.
absl::Status WrongField(absl::string_view field, const absl::AlphaNum& wanted,
                        const absl::AlphaNum& found, const absl::AlphaNum& nearest = "");

// Returns the positive multiple of `unit` closest to `value`, and at most `most`. Returns `unit` if
// there is none. `unit` and `most` must be at least 1.
int64_t NearestMultiple(int64_t value, int64_t unit, int64_t most);

// Returns the candidate closest to `found` by edit distance, for "did you mean ..."; empty if none
// is near.
std::string NearestName(absl::string_view found, const std::vector<std::string>& candidates);

}  // namespace trainyard
