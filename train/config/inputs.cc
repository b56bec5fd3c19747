#include "train/config/inputs.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/language_model.h"

namespace trainyard {
namespace {

struct Delivered {
  InputSpec input;  // The limit is not used: the source keeps to the limit of the model.
  int rank = 0;     // Rank of a unit's shape. The sizes are known only once the files are open.

  bool Fits(const InputSpec& declared) const {
    InputSpec wanted = declared;
    wanted.limit = input.limit;
    if (rank > 0 && declared.shape.rank() == rank) wanted.shape = input.shape;
    return wanted == input;
  }
};

struct Source {
  const char* field;
  std::vector<Delivered> inputs;
};

Source SourceOf(const DataConfig& data) {
  if (std::holds_alternative<ArraysData>(data)) {
    constexpr auto kReal = InputSpec::Kind::kReal;
    constexpr auto kSample = InputSpec::Unit::kSample;
    return {"data.arrays",
            {{.input = {.name = "patches", .kind = kReal}, .rank = 3},
             {.input = {.name = "target", .kind = kReal}, .rank = 3},
             {.input = {.name = "time", .unit = kSample}},
             {.input = {.name = "label", .unit = kSample}}}};
  }
  Source source{"data.synthetic", {}};
  if (std::holds_alternative<TextData>(data)) source.field = "data.text";
  if (std::holds_alternative<IndexedData>(data)) source.field = "data.indexed";
  if (std::holds_alternative<BlendData>(data)) source.field = "data.blend";
  for (const InputSpec& input : TokenInputs(0)) source.inputs.push_back({.input = input});
  return source;
}

}  // namespace

void CheckInputs(const std::vector<InputSpec>& declared, const DataConfig& source,
                 Violations& violations) {
  if (std::holds_alternative<std::monostate>(source)) return;
  if (ResetsAttentionMask(source) && FindInput(declared, "tokens") == nullptr) {
    violations.Add(absl::StrCat(SourceOf(source).field, ".reset_attention_mask"),
                   "false for a model that reads no tokens", "true");
  }
  const auto [field, delivered] = SourceOf(source);
  const auto text = [](std::string* out, const Delivered& one) {
    absl::StrAppend(out, ToString(one.input));
  };
  std::vector<std::string> missing;
  for (const InputSpec& input : declared) {
    const auto fits = [&](const Delivered& one) { return one.Fits(input); };
    if (std::none_of(delivered.begin(), delivered.end(), fits)) missing.push_back(ToString(input));
  }
  if (missing.empty()) return;
  violations.Add(
      field, absl::StrCat("data with ", absl::StrJoin(missing, ", "), ", which the model reads"),
      absl::StrJoin(delivered, ", ", text));
}

}  // namespace trainyard
