// What proto/trainyard/v1/job_spec.proto declares of the fields of a job: a row for each field that
// has the option `field` (field.proto, which explains the members). The build makes the rows
// (proto/declared_rows.h).

#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "common/interval.h"

namespace trainyard {

// What it means that a job which continues a run differs from the run in a field.
enum class ChangeEffect { kOfSection, kNothing, kTraining, kSamples, kState, kStart };
enum class PathUse { kNone, kRequired, kOptional };

struct DeclaredField {
  absl::string_view path;  // "checkpoint.keep", "data.blend.datasets[].weight"
  std::optional<WholeNumbers> whole = {};
  std::optional<Interval> real = {};
  std::optional<double> standard = {};
  bool zero_is_standard = false;
  absl::string_view names = {};  // In other frameworks, with spaces in between.
  ChangeEffect change = ChangeEffect::kOfSection;
  PathUse use = PathUse::kNone;
};

inline constexpr DeclaredField kDeclaredFields[] = {
#include "common/declared_fields.inc"
};

// Null: the field has no row.
constexpr const DeclaredField* FindDeclared(absl::string_view path) {
  for (const DeclaredField& field : kDeclaredFields) {
    if (field.path == path) return &field;
  }
  return nullptr;
}

// The row of a field that has one. Another path is an error when the code is compiled.
consteval const DeclaredField& DeclaredAt(const char* path) { return *FindDeclared(path); }

// The value of a field that a spec leaves out.
template <typename T>
consteval T Standard(const char* path) {
  return T(DeclaredAt(path).standard.value());
}

}  // namespace trainyard
