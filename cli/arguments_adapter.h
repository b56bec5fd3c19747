// Parses the command line. CLI11, which throws exceptions, is used only in this header's .cc file.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/verb.h"

namespace trainyard::cli {

struct ParsedCommand {
  const Verb* verb = nullptr;  // Null: `text` is the answer (help or version).
  Arguments arguments;
  std::string text;
};

// Parses `words`, which lack the program's name. `verbs` must outlive the result. Errors: a usage
// error that names the wrong word and, if there is one, the nearest known verb or option.
absl::StatusOr<ParsedCommand> ParseCommand(const std::vector<Verb>& verbs,
                                           const std::vector<std::string>& words);

}  // namespace trainyard::cli
