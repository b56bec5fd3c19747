#include "train/data/source.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/language_model.h"

namespace trainyard {
namespace {

using FieldAt = absl::FunctionRef<void(const std::string& path, const SourceRule& rule,
                                       const SourceField& field)>;

// Calls f with each field that is no list, and with its path.
void ForEachField(DataConfig data, FieldAt f) {
  const std::string section = SectionOf(data);
  data.source()->visit(data, [&](const SourceRule& rule, const SourceField& field) {
    const std::string path = absl::StrCat(section, ".", rule.name);
    const auto* const list = std::get_if<SectionList>(&field);
    if (list == nullptr) return f(path, rule, field);
    for (size_t i = 0; i < list->size; ++i) {
      list->visit(i, [&](const SourceRule& inner, const SourceField& item) {
        f(absl::StrCat(path, "[", i, "].", inner.name), inner, item);
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
  if (data.source()->check != nullptr) data.source()->check(data, violations);
}

std::vector<NamedFiles> FilesOf(const DataConfig& data) {
  std::vector<NamedFiles> files;
  if (data.source() == nullptr) return files;
  ForEachField(data,
               [&](const std::string& path, const SourceRule& rule, const SourceField& field) {
                 const auto* const text = std::get_if<std::string*>(&field);
                 if (text != nullptr && !(*text)->empty())
                   files.push_back({path, **text, rule.files});
               });
  return files;
}

std::string* TokenizerIn(DataConfig& data) {
  const DataSource* const source = data.source();
  return source == nullptr || source->tokenizer == nullptr ? nullptr : source->tokenizer(data);
}

std::string FieldOfTokenizer(const DataConfig& data) {
  DataConfig copy = data;
  const std::string* const tokenizer = TokenizerIn(copy);
  std::string name;
  if (tokenizer == nullptr) return name;
  copy.source()->visit(copy, [&](const SourceRule& rule, const SourceField& field) {
    const auto* const text = std::get_if<std::string*>(&field);
    if (text != nullptr && *text == tokenizer) name = absl::StrCat(SectionOf(data), ".", rule.name);
  });
  return name;
}

}  // namespace trainyard
