#include <algorithm>
#include <thread>

#include "common/status_macros.h"
#include "train/checkpoint/load.h"
#include "train/step/trainer.h"

namespace trainyard {

absl::StatusOr<RankConfig> AloneRank(const JobConfig& job) {
  RankConfig rank;
  rank.job_id = job.name;
  rank.epoch = 1;
  rank.threads = std::max(1u, std::thread::hardware_concurrency());
  if (!job.checkpoint) return rank;
  ASSIGN_OR_RETURN(rank.checkpoints, CompleteCheckpoints(job.checkpoint->directory));
  ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> all,
                   ListCheckpoints(job.checkpoint->directory));
  // A run of its own never writes where an earlier one did.
  for (const ListedCheckpoint& listed : all) rank.epoch = std::max(rank.epoch, listed.epoch + 1);
  return rank;
}

}  // namespace trainyard
