#include "train/hf/peft_patterns.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace trainyard {
namespace {

constexpr size_t kMostBytes = 4096;

// Whether a class has "[" or "&&", which mean themselves in Python, and more in ParseExpression.
bool HasClassInClass(absl::string_view expression) {
  bool in_class = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\') {
      ++i;
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

std::optional<std::vector<ExpressionSequence>> Parse(absl::string_view expression) {
  if (expression.size() > kMostBytes || HasClassInClass(expression)) return std::nullopt;
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
  for (uint32_t count = 1; count <= term.max && count <= name.size(); ++count) {
    Places next(from.size());
    for (size_t i = 0; i < name.size(); ++i) next[i + 1] = now[i] && Has(term.set, name[i]);
    now.swap(next);
    if (count >= term.min) Join(now, after);
  }
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
  std::optional<std::vector<ExpressionSequence>> options = Parse(expression);
  // The "^" is of the first alternative alone.
  if (!options || (!pattern.ends_ && options->size() > 1)) return std::nullopt;
  pattern.options_ = *std::move(options);
  return pattern;
}

std::optional<PeftPattern> PeftPattern::OfWholes(absl::string_view expression) {
  absl::ConsumePrefix(&expression, "^");
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
