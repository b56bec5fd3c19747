// Writes the config that a worker gives to a trainer (docs/formats.md, section "Trainer config").

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/channel/patience.h"
#include "worker/daemon/devices.h"
#include "worker/daemon/rank_directory.h"
#include "worker/daemon/reports.h"

namespace trainyard {

struct RankConfig {
  const StartOrder& order;
  RankPlacement rank;
  const Device& device;
  const std::vector<std::string>& roots;
  const std::string& interface;
  channel::Patience patience{};
};

// Returns the directories below the job's roots that the job's ranks make if they are missing.
std::vector<std::string> DirectoriesOf(const StartOrder& order);

// INVALID_ARGUMENT: the order's job config is not a JSON object.
absl::StatusOr<std::string> TrainerConfig(const RankConfig& config, const RankDirectory& directory);

}  // namespace trainyard
