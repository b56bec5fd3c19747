// Makes shell completion from the table of verbs.

#pragma once

#include <string>
#include <vector>

#include "cli/verb.h"

namespace trainyard::cli {

// Returns a bash script that completes verbs and their options, and files where a value or a
// positional is a path.
std::string BashCompletion(const std::vector<Verb>& verbs);

}  // namespace trainyard::cli
