// Patterns of parameter names, as a job spec has them: "*" stands for any text, of any length, dots
// among it, and everything else for itself. A pattern describes whole names.

#pragma once

#include <array>
#include <bitset>
#include <cstddef>

#include "absl/strings/string_view.h"

namespace trainyard {

inline constexpr size_t kMaxPatternBytes = 256;

// Immutable, thread-safe. The time of a match grows with the name alone, whatever the pattern.
class NamePattern {
 public:
  // `text` has at most kMaxPatternBytes.
  explicit NamePattern(absl::string_view text);

  bool Matches(absl::string_view name) const;

  // Of the names in which a number of up to `kDigits` digits stands for the one "*" of `name`: the
  // tensors of a stacked parameter (ParameterSpec::stacked). kAll: whatever the number.
  enum class Match { kNone, kSome, kAll };
  Match OfNumbered(absl::string_view name) const;
  static constexpr int kDigits = 4;

 private:
  // By number of the pattern's first characters that have been matched.
  using States = std::bitset<kMaxPatternBytes + 1>;

  States Closed(States states) const { return states | ((states & stars_) << 1); }
  // After one more character, which is one of those whose places are `literal`.
  States After(const States& states, const States& literal) const {
    return Closed(((states & literal) << 1) | (states & stars_));
  }
  States After(States states, absl::string_view text) const;
  bool Accepts(const States& states) const { return states[length_]; }

  size_t length_ = 0;               // Of the pattern, without stars behind stars.
  States stars_;                    // Their places.
  std::array<States, 256> places_;  // Of each other character.
  States digits_;
};

}  // namespace trainyard
