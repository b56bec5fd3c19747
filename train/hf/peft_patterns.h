// The regular expressions in adapter_config.json: the keys of rank_pattern and alpha_pattern, by
// which PEFT gives some layers another rank or another alpha than the rest, and target_modules and
// exclude_modules where they are no lists. Source: get_pattern_key and match_target_against_key of
// PEFT 0.21, which use Python's `re`.

#pragma once

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "train/tokenizer/expression_parser.h"

namespace trainyard {

// Which layers' names an expression matches. It is read only if ParseExpression accepts it and
// Python gives it the same meaning: it has neither lookahead, possessive repeats, nor classes in
// classes. A "^" at the beginning and a "$" at the end are read. Immutable, thread-safe.
class PeftPattern {
 public:
  // An expression that must match the end of a name, from the beginning or from behind a dot on.
  // Returns nullopt for an expression that is not read.
  static std::optional<PeftPattern> OfEnds(absl::string_view expression);
  // One that must match the whole name.
  static std::optional<PeftPattern> OfWholes(absl::string_view expression);

  // `layer` is the whole name, as `transformers` has it in memory.
  bool Matches(absl::string_view layer) const;

 private:
  bool ends_ = false;  // May begin behind a dot.
  std::vector<ExpressionSequence> options_;
};

}  // namespace trainyard
