#include "train/config/read_model.h"

#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "models/arch/registry.h"

namespace trainyard {
namespace {

// Reads one value with the type of the field `like`.
std::optional<FieldValue> ReadValue(Fields& fields, const char* name, const FieldValue& like) {
  const auto read = [&](auto value) -> std::optional<FieldValue> {
    std::optional<decltype(value)> given;
    fields.Field(name, given);
    if (!given) return std::nullopt;
    return *given;
  };
  return std::visit([&](const auto& value) { return read(value); }, like);
}

// Reads the fields in `table`. A group of fields is a section.
void ReadTable(Fields& fields, const std::vector<Field>& table, GivenFields& out) {
  const auto group_of = [](const char* name) {
    const absl::string_view text = name;
    const size_t dot = text.find('.');
    return dot == text.npos ? std::string() : std::string(text.substr(0, dot));
  };
  const auto take = [&](Fields& from, const Field& field, const char* name) {
    if (field.choices.empty()) {
      if (const auto value = ReadValue(from, name, field.value)) out[field.rule.name] = *value;
      return;
    }
    std::vector<std::pair<std::string, std::string>> choices;
    for (const std::string& choice : field.choices) choices.emplace_back(choice, choice);
    std::string chosen;
    from.EnumField(name, absl::StrCat(absl::AsciiStrToUpper(name), "_"), choices, chosen);
    if (!chosen.empty()) out[field.rule.name] = chosen;
  };
  for (size_t i = 0; i < table.size();) {
    const std::string group = group_of(table[i].rule.name);
    const std::string name = group.empty() ? table[i].rule.name : group;
    const size_t begin = i++;
    while (!group.empty() && i < table.size() && group_of(table[i].rule.name) == group) ++i;
    // Null in a resolved model that does not use the field or the group.
    if (fields.resolved() && table[begin].rule.unset && !fields.PresentOrNull(name.c_str())) {
      continue;
    }
    if (group.empty()) {
      take(fields, table[begin], name.c_str());
      continue;
    }
    fields.Section(group.c_str(), [&](Fields& section) {
      for (size_t at = begin; at < i; ++at) {
        take(section, table[at], table[at].rule.name + group.size() + 1);
      }
    });
  }
}

// The fields of all families. Used if a spec does not name a known family, so that types and
// spelling can still be checked.
std::vector<Field> AllFields() {
  std::vector<Field> all;
  std::set<std::string> known;
  for (const Family& family : Families()) {
    for (Field& field : FieldsOf(family.defaults)) {
      if (known.insert(field.rule.name).second) all.push_back(std::move(field));
    }
  }
  return all;
}

// The names of groups and fields at the top level of a mapping.
std::set<std::string> TopLevelNames(const std::vector<Field>& table) {
  std::set<std::string> names;
  for (const Field& field : table) {
    const absl::string_view name = field.rule.name;
    names.emplace(name.substr(0, name.find('.')));
  }
  return names;
}

// `family` is the family if the mapping does not name one.
void ReadArchitecture(Fields& fields, const std::string& family, GivenModel& out) {
  fields.Field("family", out.family);
  const Family* const known = FindFamily(out.family.empty() ? family : out.family);
  if (known == nullptr) return ReadTable(fields, AllFields(), out.fields);
  const std::vector<Field> table = FieldsOf(known->defaults);
  ReadTable(fields, table, out.fields);
  const std::set<std::string> own = TopLevelNames(table);
  for (const std::string& name : TopLevelNames(AllFields())) {
    if (own.contains(name) || !fields.Stands(name.c_str())) continue;
    if (!fields.Present(name.c_str())) continue;  // Makes it known.
    fields.Add(name, absl::StrCat("none, since family ", known->name, " has no ", name), "some");
  }
}

}  // namespace

std::vector<std::string> ArchitectureNames() {
  const std::set<std::string> names = TopLevelNames(AllFields());
  return {names.begin(), names.end()};
}

void VisitModel(Fields& fields, ModelChoice& out) {
  const Fields::Inlined beside = {
      .name = kFieldsBeside, .most = kMaxFieldsBeside, .most_name_bytes = kMaxFieldNameBytes};
  fields.Section("architecture", beside,
                 [&](Fields& f) { ReadArchitecture(f, "", out.architecture.emplace()); });
  fields.Field("import", out.import_path);
  fields.Field("ignore_keys", out.ignore_keys);
  if (fields.resolved()) return;
  fields.Field("preset", out.preset);
  const absl::StatusOr<Preset> preset = FindPreset(out.preset);
  const std::string family = preset.ok() ? preset->config.family() : "";
  fields.Section("overrides", beside,
                 [&](Fields& f) { ReadArchitecture(f, family, out.overrides.emplace()); });
}

}  // namespace trainyard
