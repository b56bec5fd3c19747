#include "train/hf/peft_patterns.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace trainyard {
namespace {

constexpr size_t kMostBytes = 4096;

// Whether ParseExpression sees more in the expression than Python: a class in a class, by "[" or
// "&&", which mean themselves there; or "\\p", "\\P" and "\\x{", which Python refuses.
bool MeansMore(absl::string_view expression) {
  bool in_class = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\') {
      const absl::string_view escaped = expression.substr(++i);
      if (absl::StartsWithIgnoreCase(escaped, "p") || absl::StartsWith(escaped, "x{")) return true;
    } else if (in_class && (c == '[' || expression.substr(i, 2) == "&&")) {
      return true;
    } else if (c == '[' || c == ']') {
      in_class = c == '[';
    }
  }
  return false;
}

// Whether the name alone, and not what stands around it or what was tried before, decides.
bool IsPlain(const std::vector<ExpressionSequence>& options) {
  for (const ExpressionSequence& sequence : options) {
    for (const ExpressionTerm& term : sequence) {
      const bool plain = term.kind != ExpressionTerm::Kind::kLook &&
                         term.repeat != ExpressionTerm::Repeat::kPossessive;
      if (!plain || !IsPlain(term.options)) return false;
    }
  }
  return true;
}

// Flags may stand at the beginning of a whole expression of Python, and nowhere else.
bool HasFlags(absl::string_view expression) { return absl::StartsWith(expression, "(?i"); }

std::optional<std::vector<ExpressionSequence>> Parse(absl::string_view expression) {
  if (expression.size() > kMostBytes || MeansMore(expression)) return std::nullopt;
  // A "$" that an odd number of backslashes precede means itself.
  absl::string_view before = expression;
  if (absl::ConsumeSuffix(&before, "$")) {
    const size_t last = before.find_last_not_of('\\');
    const size_t slashes = before.size() - (last == before.npos ? 0 : last + 1);
    if (slashes % 2 == 0) expression = before;
  }
  absl::StatusOr<std::vector<ExpressionSequence>> options = ParseExpression(expression);
  if (!options.ok() || !IsPlain(*options)) return std::nullopt;
  return *std::move(options);
}

// [i]: whether what was matched so far may end before byte i of the name.
using Places = std::vector<bool>;

void Join(const Places& more, Places& places) {
  for (size_t i = 0; i < places.size(); ++i) places[i] = places[i] || more[i];
}

bool Has(const CodePointRanges& set, char c) {
  return std::any_of(set.ranges().begin(), set.ranges().end(), [&](const auto& range) {
    return uint8_t(c) >= range.first && uint8_t(c) <= range.second;
  });
}

Places After(const std::vector<ExpressionSequence>& options, const Places& from,
             absl::string_view name);

// Names are ASCII.
Places AfterTerm(const ExpressionTerm& term, const Places& from, absl::string_view name) {
  Places after = term.min == 0 ? from : Places(from.size());
  if (term.kind == ExpressionTerm::Kind::kGroup) {
    Join(After(term.options, from, name), after);
    return after;
  }
  Places now = from;
  const auto fits = [&](size_t i) { return now[i] && Has(term.set, name[i]); };
  const bool without_end = term.max >= name.size();
  for (uint32_t count = 1; count <= (without_end ? term.min : term.max); ++count) {
    if (count > name.size()) return after;
    Places next(from.size());
    for (size_t i = 0; i < name.size(); ++i) next[i + 1] = fits(i);
    now.swap(next);
    if (count >= term.min) Join(now, after);
  }
  if (!without_end) return after;
  // Any number of further ones, in one pass: many such repeats in a file must not take hours.
  for (size_t i = 0; i < name.size(); ++i) now[i + 1] = now[i + 1] || fits(i);
  Join(now, after);
  return after;
}

Places After(const std::vector<ExpressionSequence>& options, const Places& from,
             absl::string_view name) {
  Places after(from.size());
  for (const ExpressionSequence& sequence : options) {
    Places now = from;
    for (const ExpressionTerm& term : sequence) now = AfterTerm(term, now, name);
    Join(now, after);
  }
  return after;
}

}  // namespace

std::optional<PeftPattern> PeftPattern::OfEnds(absl::string_view expression) {
  PeftPattern pattern;
  pattern.ends_ = !absl::ConsumePrefix(&expression, "^");
  if (HasFlags(expression)) return std::nullopt;  // Not at the beginning of what PEFT makes of it.
  std::optional<std::vector<ExpressionSequence>> options = Parse(expression);
  // The "^" is of the first alternative alone.
  if (!options || (!pattern.ends_ && options->size() > 1)) return std::nullopt;
  pattern.options_ = *std::move(options);
  return pattern;
}

std::optional<PeftPattern> PeftPattern::OfWholes(absl::string_view expression) {
  if (absl::ConsumePrefix(&expression, "^") && HasFlags(expression)) return std::nullopt;
  std::optional<std::vector<ExpressionSequence>> options = Parse(expression);
  if (!options) return std::nullopt;
  PeftPattern pattern;
  pattern.options_ = *std::move(options);
  return pattern;
}

bool PeftPattern::Matches(absl::string_view layer) const {
  Places from(layer.size() + 1);
  from[0] = true;
  for (size_t i = 0; ends_ && i < layer.size(); ++i) from[i + 1] = layer[i] == '.';
  return After(options_, from, layer)[layer.size()];
}

}  // namespace trainyard
