#include <algorithm>
#include <thread>

#include "common/roots.h"
#include "common/status_macros.h"
#include "train/checkpoint/lineage.h"
#include "train/trainer/trainer.h"

namespace trainyard {

absl::StatusOr<RankConfig> AloneRank(const JobConfig& job) {
  RankConfig rank;
  rank.job_id = job.name;
  rank.alone = true;
  rank.epoch = 1;
  rank.threads = std::max(1u, std::thread::hardware_concurrency());
  if (!job.checkpoint) return rank;
  // A run alone never writes where an earlier run has written.
  const auto directory = Roots().FindDirectory(job.checkpoint->directory);
  if (absl::IsNotFound(directory.status())) return rank;
  RETURN_IF_ERROR(directory.status());
  ASSIGN_OR_RETURN(const int64_t newest, NewestEpoch(*directory));
  rank.epoch = newest + 1;
  return rank;
}

}  // namespace trainyard
