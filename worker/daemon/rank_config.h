// Writes the config that a worker gives to a trainer (docs/formats.md, section "Trainer config").

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/daemon/rank.h"

namespace trainyard {

// Returns the directories below the job's roots that the job's ranks make if they are missing.
std::vector<std::string> DirectoriesOf(const StartOrder& order);

// `rank` is on one of the daemon's devices. The paths of its job lie below the order's roots.
// INVALID_ARGUMENT: the order's job config is not a JSON object.
absl::StatusOr<std::string> TrainerConfigText(const DaemonOptions& options, const StartOrder& order,
                                              const RankPlacement& rank,
                                              const RankDirectory& directory);

}  // namespace trainyard
