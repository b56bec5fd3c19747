// For tests that change each field of a table in turn.

#pragma once

#include "models/arch/config.h"

namespace trainyard {

// A value that differs from the field's, and that its type can have. Not all letters of a text may
// be the same.
inline FieldValue Another(const Field& field) {
  if (const auto* integer = std::get_if<int64_t>(&field.value)) return *integer + 1;
  if (const auto* number = std::get_if<double>(&field.value)) return *number + 0.5;
  if (const auto* flag = std::get_if<bool>(&field.value)) return !*flag;
  const std::string& text = std::get<std::string>(field.value);
  if (field.choices.empty()) return text.substr(1) + text[0];
  return field.choices[field.choices[0] == text ? 1 : 0];
}

}  // namespace trainyard
