#include "train/config/inputs.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainyard {
namespace {

bool Fits(const DeliveredInput& delivered, const InputSpec& declared) {
  InputSpec wanted = declared;
  wanted.limit = delivered.input.limit;
  if (delivered.rank > 0 && declared.shape.rank() == delivered.rank) {
    wanted.shape = delivered.input.shape;
  }
  return wanted == delivered.input;
}

}  // namespace

void CheckInputs(const std::vector<InputSpec>& declared, const DataConfig& source,
                 Violations& violations) {
  if (source.source() == nullptr) return;
  const std::string section = SectionOf(source);
  const SourceFacts facts = FactsOf(source);
  if (facts.reset_attention_mask && !facts.packs && FindInput(declared, "tokens") == nullptr) {
    violations.Add(absl::StrCat(section, ".reset_attention_mask"),
                   "false for a model that reads no tokens", "true");
  }
  const auto text = [](std::string* out, const DeliveredInput& one) {
    absl::StrAppend(out, ToString(one.input));
  };
  std::vector<std::string> missing;
  for (const InputSpec& input : declared) {
    const auto fits = [&](const DeliveredInput& one) { return Fits(one, input); };
    if (std::none_of(facts.inputs.begin(), facts.inputs.end(), fits)) {
      missing.push_back(ToString(input));
    }
  }
  if (missing.empty()) return;
  violations.Add(
      section, absl::StrCat("data with ", absl::StrJoin(missing, ", "), ", which the model reads"),
      absl::StrJoin(facts.inputs, ", ", text));
}

}  // namespace trainyard
