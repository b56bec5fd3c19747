// Objects of JSON, of which each line of a file has one.

#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// Reads an object of JSON, as Python writes it, too (ParsePythonJson). The line must be UTF-8.
// DATA_LOSS: no JSON. INVALID_ARGUMENT: no object.
absl::StatusOr<nlohmann::json> ReadJsonLine(absl::string_view line);

}  // namespace trainyard
