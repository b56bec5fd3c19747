#include "models/hf/field_json.h"

#include <utility>
#include <variant>

#include "common/check.h"

namespace trainyard {

nlohmann::json JsonOf(const FieldValue& value) {
  return std::visit([](const auto& v) { return nlohmann::json(v); }, value);
}

Field FindField(const ModelConfig& config, absl::string_view name) {
  for (Field& field : FieldsOf(config)) {
    if (field.rule.name == name) return std::move(field);
  }
  CHECK(false) << "family " << config.family() << " has no field " << name;
  std::abort();
}

std::optional<FieldValue> FindValue(const ModelConfig& config, absl::string_view name) {
  for (const Field& field : FieldsOf(config)) {
    if (field.rule.name == name) return field.value;
  }
  return std::nullopt;
}

bool IsZero(const FieldValue& value) {
  return value == FieldValue(0.0) || value == FieldValue(int64_t{0});
}

}  // namespace trainyard
