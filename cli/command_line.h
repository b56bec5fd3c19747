// The command line independent of its process: it takes words, and gives output and an exit code.

#pragma once

#include <string>
#include <vector>

#include "cli/verb.h"

namespace trainyard::cli {

// Parses `words`, which lack the program's name, runs the verb and prints its error. Returns the
// exit code.
int RunCommandLine(const std::vector<Verb>& verbs, const std::vector<std::string>& words,
                   const Surroundings& surroundings, Output& output);

}  // namespace trainyard::cli
