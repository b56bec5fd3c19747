// Patterns of parameter names, as in a job spec. "*" stands for any text of any length, dots
// included, and every other character for itself. A pattern describes whole names.

#pragma once

#include <array>
#include <bitset>
#include <cstddef>

#include "absl/strings/string_view.h"

namespace trainyard {

inline constexpr size_t kMaxPatternBytes = 256;

// Immutable, thread-safe. The time of a match depends only on the length of the name, whatever the
// pattern.
class NamePattern {
 public:
  // `text` must have at most kMaxPatternBytes.
  explicit NamePattern(absl::string_view text);

  bool Matches(absl::string_view name) const;

  // Matches the names in which a number of up to `kDigits` digits replaces the only "*" of `name`:
  // the tensors of a stacked parameter (ParameterSpec::stacked). kAll: every number matches.
  enum class Match { kNone, kSome, kAll };
  Match OfNumbered(absl::string_view name) const;
  static constexpr int kDigits = 4;

 private:
  // A set of states. Bit i: the first i characters of the pattern have been matched.
  using States = std::bitset<kMaxPatternBytes + 1>;

  States Closed(States states) const { return states | ((states & stars_) << 1); }
  // The states after one more character. `literal` has the places of this character in the pattern.
  States After(const States& states, const States& literal) const {
    return Closed(((states & literal) << 1) | (states & stars_));
  }
  States After(States states, absl::string_view text) const;
  bool Accepts(const States& states) const { return states[length_]; }

  size_t length_ = 0;               // Length of the pattern; successive stars count once.
  States stars_;                    // Places of stars.
  std::array<States, 256> places_;  // Places of every other character.
  States digits_;
};

}  // namespace trainyard
