#include "train/hf/peft_patterns.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "train/config/name_pattern.h"

namespace trainyard {

std::optional<PeftPattern> PeftPattern::Parse(absl::string_view expression) {
  PeftPattern pattern;
  if (expression.size() > kMaxPatternBytes) return std::nullopt;
  pattern.whole_ = absl::ConsumePrefix(&expression, "^");
  if (!absl::EndsWith(expression, "\\$")) absl::ConsumeSuffix(&expression, "$");
  while (!expression.empty()) {
    const bool escaped = absl::ConsumePrefix(&expression, "\\");
    if (expression.empty()) return std::nullopt;
    const char letter = expression.front();
    expression.remove_prefix(1);
    Part part{.kind = Kind::kLetter, .letter = letter};
    if (!escaped && letter == '.') {
      part.kind = absl::ConsumePrefix(&expression, "*") ? Kind::kRun : Kind::kAny;
    } else if (escaped ? !absl::ascii_ispunct(letter)
                       : !absl::ascii_isalnum(letter) && letter != '_' && letter != '-') {
      return std::nullopt;  // A class, a choice or a group.
    }
    const char next = expression.empty() ? '\0' : expression.front();
    if (next == '*' || next == '+' || next == '?' || next == '{') return std::nullopt;
    pattern.parts_.push_back(part);
  }
  return pattern;
}

bool PeftPattern::Matches(absl::string_view layer) const {
  // matched[i]: the parts so far match what stands before layer[i], from some beginning on.
  std::vector<bool> matched(layer.size() + 1), next(layer.size() + 1);
  matched[0] = true;
  for (size_t i = 0; !whole_ && i < layer.size(); ++i) matched[i + 1] = layer[i] == '.';
  for (const Part& part : parts_) {
    next.assign(layer.size() + 1, false);
    for (size_t i = 0; i < layer.size(); ++i) {
      const bool fits = part.kind != Kind::kLetter || layer[i] == part.letter;
      next[i + 1] = fits && (matched[i] || (part.kind == Kind::kRun && next[i]));
    }
    if (part.kind == Kind::kRun) {
      for (size_t i = 0; i <= layer.size(); ++i) next[i] = next[i] || matched[i];
    }
    matched.swap(next);
  }
  return matched[layer.size()];
}

}  // namespace trainyard
