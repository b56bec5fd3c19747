// Reads the text of a job spec from where the user said.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trainyard::cli {

struct SpecText {
  std::string name;  // For messages: the path, or "standard input".
  std::string text;
};

// `path` of "-" is standard input.
absl::StatusOr<SpecText> ReadSpecText(const std::string& path);

}  // namespace trainyard::cli
