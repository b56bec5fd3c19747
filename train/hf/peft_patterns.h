// The keys of rank_pattern and alpha_pattern in adapter_config.json, by which PEFT gives some
// layers another rank or another alpha than the rest. Source: get_pattern_key of PEFT 0.21.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard {

// A key is a regular expression, which must match the end of a layer's name, from the beginning or
// from behind a dot on. Read are those of names, "." for any character, ".*", a backslash before
// punctuation, and "^" at the beginning. Immutable, thread-safe.
class PeftPattern {
 public:
  // Returns nullopt for another expression.
  static std::optional<PeftPattern> Parse(absl::string_view expression);
  // `layer` is the whole name, as `transformers` has it in memory.
  bool Matches(absl::string_view layer) const;

 private:
  enum class Kind : uint8_t { kLetter, kAny, kRun };
  struct Part {
    Kind kind = Kind::kLetter;
    char letter = 0;
  };

  bool whole_ = false;  // Matches whole names alone.
  std::vector<Part> parts_;
};

}  // namespace trainyard
