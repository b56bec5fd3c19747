#include "train/config/patterns.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "train/config/name_pattern.h"

namespace trainyard {
namespace {

size_t CommonStart(absl::string_view a, absl::string_view b) {
  const auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return size_t(end - a.begin());
}

}  // namespace

bool CheckPatterns(const std::vector<std::string>& patterns, absl::string_view field,
                   Violations& violations) {
  if (patterns.size() > kMaxPatterns) {
    violations.Add(field, absl::StrCat("at most ", kMaxPatterns, " patterns"), patterns.size(),
                   kMaxPatterns);
    return false;
  }
  bool legal = true;
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (!patterns[i].empty() && patterns[i].size() <= kMaxPatternBytes) continue;
    legal = false;
    violations.Add(absl::StrCat(field, "[", i, "]"),
                   absl::StrCat("a pattern of 1 to ", kMaxPatternBytes, " bytes"),
                   patterns[i].size());
  }
  return legal;
}

std::string NearestOfNames(absl::string_view pattern, const std::vector<std::string>& names,
                           bool by_edits) {
  if (by_edits) {
    if (std::string near = NearestName(pattern, names); !near.empty()) return near;
  }
  return *std::max_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return CommonStart(pattern, a) < CommonStart(pattern, b);
  });
}

}  // namespace trainyard
