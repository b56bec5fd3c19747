#include "models/arch/config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/arch/registry.h"

namespace trainyard {
namespace {

void AddUnknownFamily(absl::string_view found, FieldProblems& problems) {
  const std::string near = NearestName(found, FamilyNames());
  problems.Add("family", absl::StrJoin(FamilyNames(), " or "), absl::StrCat("\"", found, "\""),
               near);
}

void Take(const Family& family, const GivenFields& given, FieldProblems& problems,
          ModelConfig& config) {
  const ModelConfig before = config;
  family.visit(config, [&](const FieldRule& rule, const FieldRef& field) {
    if (const auto it = given.find(rule.name); it != given.end()) Assign(field, it->second);
  });
  family.complete(before, given, problems, config);
}

}  // namespace

bool ModelConfig::operator==(const ModelConfig& other) const {
  if (family_ != other.family_) return false;
  const std::vector<Field> mine = FieldsOf(*this), others = FieldsOf(other);
  for (size_t i = 0; i < mine.size(); ++i) {
    if (mine[i].value != others[i].value) return false;
  }
  return true;
}

std::vector<Field> FieldsOf(const ModelConfig& config) {
  std::vector<Field> fields;
  const Family* family = FindFamily(config.family());
  if (family == nullptr) return fields;
  ModelConfig copy = config;
  family->visit(copy, [&](const FieldRule& rule, const FieldRef& field) {
    const Choice* const choice = std::get_if<Choice>(&field);
    fields.push_back({rule, ValueOf(field), choice ? choice->names : std::vector<std::string>()});
  });
  return fields;
}

void SetField(ModelConfig& config, absl::string_view name, const FieldValue& value) {
  const Family* family = FindFamily(config.family());
  CHECK(family != nullptr) << config.family();
  bool found = false;
  family->visit(config, [&](const FieldRule& rule, const FieldRef& field) {
    if (rule.name != name) return;
    Assign(field, value);
    found = true;
  });
  CHECK(found) << "family " << config.family() << " has no field " << name;
}

ModelFacts FactsOf(const ModelConfig& config) {
  const Family* family = FindFamily(config.family());
  CHECK(family != nullptr) << config.family();
  return family->facts(config);
}

std::optional<std::string> FirstDifference(const ModelConfig& found, const ModelConfig& wanted,
                                           MayDiffer use) {
  if (found.family() != wanted.family()) {
    return absl::StrCat("family is ", found.family(), ", wanted ", wanted.family());
  }
  const std::vector<Field> mine = FieldsOf(found), others = FieldsOf(wanted);
  for (size_t i = 0; i < mine.size(); ++i) {
    if (mine[i].rule.may_differ >= use || mine[i].value == others[i].value) continue;
    return absl::StrCat(mine[i].rule.name, " is ", TextOf(mine[i].value), ", wanted ",
                        TextOf(others[i].value));
  }
  return std::nullopt;
}

ModelConfig Override(ModelConfig config, const GivenModel& given, Violations& violations,
                     absl::string_view path) {
  FieldProblems problems(violations, path);
  if (!given.family.empty() && given.family != config.family()) {
    problems.Add("family",
                 absl::StrCat("none beside a preset, or its own, \"", config.family(),
                              "\" (another one goes inline, as architecture)"),
                 absl::StrCat("\"", given.family, "\""));
  }
  const std::vector<Field> known = FieldsOf(config);
  for (const auto& [name, value] : given.fields) {
    const bool own = std::any_of(known.begin(), known.end(), [&, &name = name](const Field& field) {
      return field.rule.name == name;
    });
    if (own) continue;
    problems.Add(name, absl::StrCat("none, since family ", config.family(), " has no ", name),
                 TextOf(value));
  }
  Take(*FindFamily(config.family()), given.fields, problems, config);
  return config;
}

ModelConfig FromFields(const GivenModel& given, Violations& violations, absl::string_view path) {
  FieldProblems problems(violations, path);
  if (given.family.empty()) {
    problems.Add("family", absl::StrJoin(FamilyNames(), " or "), "none");
    return {};
  }
  const Family* family = FindFamily(given.family);
  if (family == nullptr) {
    AddUnknownFamily(given.family, problems);
    return {};
  }
  ModelConfig config = family->defaults;
  for (const Field& field : FieldsOf(config)) {
    if (!field.rule.required || given.fields.contains(field.rule.name)) continue;
    problems.Add(field.rule.name, "a size, which an inline architecture has no default for",
                 "none");
  }
  Take(*family, given.fields, problems, config);
  return config;
}

void Validate(const ModelConfig& config, Violations& violations, absl::string_view path) {
  FieldProblems problems(violations, path);
  const Family* family = FindFamily(config.family());
  if (family == nullptr) return AddUnknownFamily(config.family(), problems);
  ModelConfig copy = config;
  family->visit(copy,
                [&](const FieldRule& rule, const FieldRef& field) { problems.Check(rule, field); });
  family->check(config, problems);
}

}  // namespace trainyard
