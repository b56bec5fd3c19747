// The command line parsed: CLI11, which throws, stays behind this.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/verb.h"

namespace trainyard::cli {

struct ParsedCommand {
  const Verb* verb = nullptr;  // Null: `text` is the answer (help, version).
  Arguments arguments;
  std::string text;
};

// `words` without the program's name. Errors: a usage error that names the word and, where there is
// one, the nearest known verb or option. `verbs` outlives the result.
absl::StatusOr<ParsedCommand> ParseCommand(const std::vector<Verb>& verbs,
                                           const std::vector<std::string>& words);

}  // namespace trainyard::cli
