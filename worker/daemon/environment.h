// What a trainer sees of the daemon's environment: a list of names that it may, so that nothing of
// a user's or a scheduler's session changes a run.

#pragma once

#include <string>
#include <vector>

namespace trainyard {

// `environment` as in `environ`: NAME=value, ended by a null pointer.
std::vector<std::string> TrainerEnvironment(const char* const* environment);

}  // namespace trainyard
