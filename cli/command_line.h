// The command line without its process: words in, output and exit code out.

#pragma once

#include <string>
#include <vector>

#include "cli/verb.h"

namespace trainyard::cli {

// Parses `words` (without the program's name), runs the verb, prints its error. Returns the exit
// code.
int RunCommandLine(const std::vector<Verb>& verbs, const std::vector<std::string>& words,
                   const Surroundings& surroundings, Output& output);

}  // namespace trainyard::cli
