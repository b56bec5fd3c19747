// Reading the traces that a profile gives.

#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/files.h"
#include "models/program/timeline.h"

namespace trainyard::testing {

inline nlohmann::json ReadTrace(const std::string& path) {
  return nlohmann::json::parse(*ReadFile(path));
}

// Spans of a track, in the order of the file.
inline std::vector<nlohmann::json> SpansOf(const nlohmann::json& trace, Track track) {
  std::vector<nlohmann::json> spans;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["tid"] == int(track)) spans.push_back(event);
  }
  return spans;
}

}  // namespace trainyard::testing
