#include "train/config/declared_values.h"

#include <nlohmann/json.hpp>
#include <set>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "train/config/resolved_job.h"

namespace trainyard {
namespace {

using Json = nlohmann::ordered_json;
using Found = absl::FunctionRef<void(const std::string& field, const DeclaredField& declared,
                                     const Json& value)>;

// Calls found for each field within `field` that has a row.
void ForEachDeclared(const std::string& field, const Json& value, Found found) {
  if (const DeclaredField* const declared = DeclaredOf(field)) found(field, *declared, value);
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      ForEachDeclared(absl::StrCat(field, field.empty() ? "" : ".", key), inner, found);
    }
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      ForEachDeclared(absl::StrCat(field, "[", i, "]"), value[i], found);
    }
  }
}

}  // namespace

const DeclaredField* DeclaredOf(absl::string_view field) {
  std::string path;  // Without the numbers of a list's items.
  bool inside = false;
  for (const char c : field) {
    inside = c == '[' || (inside && c != ']');
    if (!inside || c == '[') path += c;
  }
  return FindDeclared(path);
}

void CheckNumbers(const JobConfig& job, Violations& violations) {
  std::set<std::string> reported;
  for (const FieldViolation& violation : violations.list()) reported.insert(violation.field);
  ForEachDeclared("", JobJson(job),
                  [&](const std::string& field, const DeclaredField& declared, const Json& value) {
                    if (!value.is_number() || reported.contains(field)) return;
                    if (declared.whole) {
                      violations.Check(field, value.get<int64_t>(), *declared.whole);
                    }
                    if (declared.real) violations.Check(field, value.get<double>(), *declared.real);
                  });
}

std::vector<SpecPath> PathsOf(const JobConfig& job) {
  std::vector<SpecPath> paths;
  ForEachDeclared("", JobJson(job),
                  [&](const std::string& field, const DeclaredField& declared, const Json& value) {
                    if (declared.use == PathUse::kNone) return;
                    const std::string path = value.get<std::string>();
                    if (path.empty() && declared.use == PathUse::kOptional) return;
                    paths.push_back({field, path});
                  });
  return paths;
}

}  // namespace trainyard
