// The trainer, which computes what the command line has no kernels for.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/verb.h"

namespace trainyard::cli {

// Turns this process into the trainer beside this program, so that the trainer's output and exit
// code are those of the command. Returns only if that fails. Each of the `options` that the call or
// its default gives is passed on, as often as it is given.
absl::Status BecomeTrainer(const Context& context, std::vector<std::string> arguments,
                           const std::vector<const char*>& options);

}  // namespace trainyard::cli
