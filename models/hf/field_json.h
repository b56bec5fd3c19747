// Fields of a configuration as values of config.json, for both directions (config.cc,
// config_to_hf.cc).

#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/string_view.h"
#include "models/arch/registry.h"

namespace trainyard {

inline constexpr char kRopeParameters[] = "rope_parameters";
inline constexpr char kRopeScaling[] = "rope_scaling";
inline constexpr char kQuantization[] = "quantization_config";
// What MLX calls the same settings. Its later releases write both keys.
inline constexpr char kMlxQuantization[] = "quantization";

nlohmann::json JsonOf(const FieldValue& value);
// CHECKs that the family has the field.
Field FindField(const ModelConfig& config, absl::string_view name);
// The value of the field. Absent: the family has no such field.
std::optional<FieldValue> FindValue(const ModelConfig& config, absl::string_view name);
bool IsZero(const FieldValue& value);

}  // namespace trainyard
