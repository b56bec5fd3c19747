// A YAML or JSON document of bounded size, as a tree. Job specs and config files are read through
// this tree. Only yaml_adapter.cc uses yaml-cpp.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

struct YamlField;

struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMapping };

  Kind kind = Kind::kNull;
  std::string text = {};  // For a scalar: as written, without quotes.
  bool quoted = false;    // The scalar is in quotes: text even if it looks like a number.
  std::vector<YamlNode> items = {};    // For a sequence.
  std::vector<YamlField> fields = {};  // For a mapping, in order; keys are unique.
  int line = 0;                        // From 1. The line of the key for a mapping's value.

  const YamlNode* Find(absl::string_view key) const;  // Null if not a mapping or absent.
  YamlNode* Find(absl::string_view key) {
    return const_cast<YamlNode*>(std::as_const(*this).Find(key));
  }
};

struct YamlField {
  std::string key;
  YamlNode value;
};

size_t CountNodes(const YamlNode& node);  // The node and all nodes below it.

const char* Name(YamlNode::Kind kind);  // "null", "a value", "a list", "a mapping".

inline constexpr size_t kMaxYamlBytes = 256 << 10;
inline constexpr int kMaxYamlDepth = 32;
inline constexpr size_t kMaxYamlKeys = 1'000;    // Per mapping.
inline constexpr size_t kMaxYamlNodes = 20'000;  // With aliases expanded.

// Reads exactly one document in UTF-8. INVALID_ARGUMENT: "line 3, column 7: what is wrong", also
// for duplicate keys, keys that are not scalars, a second document, and documents beyond the limits
// above.
absl::StatusOr<YamlNode> ParseYaml(absl::string_view text);

}  // namespace trainyard
