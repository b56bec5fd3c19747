#include "train/data/source.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/language_model.h"

namespace trainyard {
namespace {

using FieldAt = absl::FunctionRef<void(const std::string& path, const SourceRule& rule,
                                       const SourceField& field)>;

// Calls f with each field that is no list, and with its path. `numbered`: with the fields of each
// section of a list. Otherwise with those of one section, whose path has no number.
void ForEachField(DataConfig data, bool numbered, FieldAt f) {
  const std::string section = SectionOf(data);
  data.source()->visit(data, [&](const SourceRule& rule, const SourceField& field) {
    const std::string path = absl::StrCat(section, ".", rule.name);
    const auto* const list = std::get_if<SectionList>(&field);
    if (list == nullptr) return f(path, rule, field);
    if (!numbered) list->add();
    for (size_t i = 0; i < (numbered ? list->size : 1); ++i) {
      const std::string number = numbered ? absl::StrCat(i) : "";
      list->visit(i, [&](const SourceRule& inner, const SourceField& item) {
        f(absl::StrCat(path, "[", number, "].", inner.name), inner, item);
      });
    }
  });
}

}  // namespace

std::span<const DataSource* const> DataSources() {
#define TRAINYARD_LIST_SOURCE(Name) &Name##Source(),
  static const DataSource* const kAll[] = {TRAINYARD_FOR_EACH_SOURCE(TRAINYARD_LIST_SOURCE)};
#undef TRAINYARD_LIST_SOURCE
  return kAll;
}

SourceRule ValidationFractionRule() {
  return {.name = "validation_fraction", .legal = Interval{.least = 0, .below = 0.5}};
}

SourceRule ResetAttentionMaskRule() {
  return {.name = "reset_attention_mask", .same_samples = true};
}

SourceRule EodMaskLossRule() { return {.name = "eod_mask_loss", .same_samples = true}; }

std::vector<DeliveredInput> DeliveredTokens() {
  std::vector<DeliveredInput> delivered;
  for (const InputSpec& input : TokenInputs(0)) delivered.push_back({.input = input});
  return delivered;
}

std::string SectionOf(const DataConfig& data) {
  CHECK(data.source() != nullptr) << "no source of data";
  return absl::StrCat("data.", data.source()->name);
}

SourceFacts FactsOf(const DataConfig& data) {
  return data.source() == nullptr ? SourceFacts() : data.source()->facts(data);
}

bool ResetsAttentionMask(const DataConfig& data) { return FactsOf(data).reset_attention_mask; }

void ValidateData(const DataConfig& data, Violations& violations) {
  if (data.source() == nullptr) {
    const auto example = [](std::string* out, const DataSource* source) {
      absl::StrAppend(out, source->example);
    };
    const std::string examples = absl::StrJoin(DataSources(), ", ", example);
    return violations.Add("data", absl::StrCat("one of ", examples), "none");
  }
  ForEachField(data, /*numbered=*/true,
               [&](const std::string& path, const SourceRule& rule, const SourceField& field) {
                 if (!rule.legal) return;
                 if (const auto* const number = std::get_if<double*>(&field)) {
                   violations.Check(path, **number, *rule.legal);
                 } else if (const auto* const integer = std::get_if<int64_t*>(&field)) {
                   violations.Check(path, **integer, *rule.legal);
                 }
               });
  if (data.source()->check != nullptr) data.source()->check(data, violations);
}

std::vector<DataPath> PathsOf(const DataConfig& data) {
  std::vector<DataPath> paths;
  if (data.source() == nullptr) return paths;
  ForEachField(data, /*numbered=*/true,
               [&](const std::string& path, const SourceRule& rule, const SourceField& field) {
                 const auto* const text = std::get_if<std::string*>(&field);
                 if (text == nullptr || !rule.is_path) return;
                 if ((*text)->empty() && rule.may_be_empty) return;
                 paths.push_back({path, **text, rule.files});
               });
  return paths;
}

std::vector<KnownDataField> KnownDataFields() {
  std::vector<KnownDataField> known;
  for (const DataSource* const source : DataSources()) {
    ForEachField(
        source->make(), /*numbered=*/false,
        [&](const std::string& path, const SourceRule& rule, const SourceField& field) {
          known.push_back({.field = path,
                           .is_path = rule.is_path && std::holds_alternative<std::string*>(field),
                           .same_samples = rule.same_samples});
        });
  }
  return known;
}

}  // namespace trainyard
