// The trainer's config file (docs/formats.md): the job to train (`job`), and the rank that this
// process is (`rank`).

#pragma once

#include <optional>

#include "common/rank_config.h"
#include "train/config/job_config.h"

namespace trainyard {

struct TrainerConfig {
  JobConfig job;
  std::optional<RankConfig> rank;  // Absent: the trainer runs alone, one rank of one.
};

}  // namespace trainyard
