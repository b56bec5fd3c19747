// Reads the text of a job spec from the file that the user names.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trainyard::cli {

struct SpecText {
  std::string name;  // The path or "standard input", for messages.
  std::string text;
};

// If `path` is "-", reads standard input.
absl::StatusOr<SpecText> ReadSpecText(const std::string& path);

}  // namespace trainyard::cli
