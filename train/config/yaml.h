// A bounded YAML (hence JSON) document as a tree. The only way from text to values in Trainyard;
// yaml-cpp stays behind yaml_adapter.cc.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

struct YamlField;

struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMapping };

  Kind kind = Kind::kNull;
  std::string text;               // Of a scalar, as written, without quotes.
  bool quoted = false;            // A scalar in quotes: text even where it looks like a number.
  std::vector<YamlNode> items;    // Of a sequence.
  std::vector<YamlField> fields;  // Of a mapping, in order; keys unique.
  int line = 0;                   // From 1; of a mapping's value, that of its key.

  const YamlNode* Find(absl::string_view key) const;  // Null if not a mapping or absent.
};

struct YamlField {
  std::string key;
  YamlNode value;
};

const char* Name(YamlNode::Kind kind);  // "null", "a value", "a list", "a mapping".

inline constexpr size_t kMaxYamlBytes = 256 << 10;
inline constexpr int kMaxYamlDepth = 32;
inline constexpr size_t kMaxYamlKeys = 1'000;    // Of one mapping.
inline constexpr size_t kMaxYamlNodes = 20'000;  // Aliases expanded.

// Exactly one document, in UTF-8. Errors: INVALID_ARGUMENT "line 3, column 7: what is wrong", also
// for duplicate keys, keys that are no scalars, a second document, and beyond the limits above.
absl::StatusOr<YamlNode> ParseYaml(absl::string_view text);

}  // namespace trainyard
