// Writes JSON as Python does: numbers that are not finite are bare words (ParsePythonJson in
// common/json.h reads them).

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trainyard {

// Returns the text with `indent`, in which each object {"__float__": "Infinity"} is the bare word.
std::string DumpPythonJson(const nlohmann::json& json, int indent);

}  // namespace trainyard
