// Shell completion made from the table of verbs.

#pragma once

#include <string>
#include <vector>

#include "cli/verb.h"

namespace trainyard::cli {

// A bash script: verbs, their options, files where a value or a positional is a path.
std::string BashCompletion(const std::vector<Verb>& verbs);

}  // namespace trainyard::cli
