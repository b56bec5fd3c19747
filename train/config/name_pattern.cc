#include "train/config/name_pattern.h"

#include "absl/strings/ascii.h"
#include "common/check.h"

namespace trainyard {

NamePattern::NamePattern(absl::string_view text) {
  CHECK(text.size() <= kMaxPatternBytes) << "a pattern of " << text.size() << " bytes";
  for (const char c : text) {
    if (c == '*' && length_ > 0 && stars_[length_ - 1]) continue;
    (c == '*' ? stars_ : places_[uint8_t(c)]).set(length_);
    if (absl::ascii_isdigit(uint8_t(c))) digits_.set(length_);
    ++length_;
  }
}

NamePattern::States NamePattern::After(States states, absl::string_view text) const {
  for (size_t i = 0; i < text.size() && states.any(); ++i) {
    states = After(states, places_[uint8_t(text[i])]);
  }
  return states;
}

bool NamePattern::Matches(absl::string_view name) const {
  return Accepts(After(Closed(States(1)), name));
}

NamePattern::Match NamePattern::OfNumbered(absl::string_view name) const {
  const size_t star = name.find('*');
  CHECK(star != name.npos) << name << " has no number";
  const States before = After(Closed(States(1)), name.substr(0, star));
  const absl::string_view behind = name.substr(star + 1);
  // Here only stars match the number, so any number matches.
  if (Accepts(After(Closed(before & stars_), behind))) return Match::kAll;
  States some, states = before;
  for (int digit = 0; digit < kDigits; ++digit) some |= states = After(states, digits_);
  return Accepts(After(some, behind)) ? Match::kSome : Match::kNone;
}

}  // namespace trainyard
