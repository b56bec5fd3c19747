#include "train/config/inputs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainyard {
namespace {

const char* FieldOf(const DataConfig& source) {
  if (std::holds_alternative<TextData>(source)) return "data.text";
  return std::holds_alternative<IndexedData>(source) ? "data.indexed" : "data.synthetic";
}

// The limit of an integer is what the source is told, not what the source has.
bool Fits(const InputSpec& delivered, const InputSpec& declared) {
  InputSpec wanted = declared;
  wanted.limit = delivered.limit;
  return delivered == wanted;
}

}  // namespace

std::vector<InputSpec> DeliveredBy(const DataConfig& source) {
  if (std::holds_alternative<std::monostate>(source)) return {};
  return {{.name = "tokens"}, {.name = "targets"}};
}

void CheckInputs(const std::vector<InputSpec>& declared, const DataConfig& source,
                 Violations& violations) {
  const std::vector<InputSpec> delivered = DeliveredBy(source);
  if (delivered.empty()) return;
  const auto text = [](std::string* out, const InputSpec& input) {
    absl::StrAppend(out, ToString(input));
  };
  for (const InputSpec& input : declared) {
    const auto fits = [&](const InputSpec& one) { return Fits(one, input); };
    if (std::any_of(delivered.begin(), delivered.end(), fits)) continue;
    violations.Add(FieldOf(source),
                   Wanted(absl::StrCat("data with ", ToString(input), ", which the model reads"),
                          absl::StrJoin(delivered, ", ", text)));
  }
}

}  // namespace trainyard
