// Derives from a job's configuration how its ranks divide the model and the batch.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "models/arch/config.h"
#include "models/parallel/mesh.h"
#include "train/checkpoint/manifest.h"
#include "train/config/job_config.h"
#include "train/config/mesh.h"
#include "train/pipeline/schedule.h"

namespace trainyard {

struct Layout {
  Mesh mesh;              // For rank 0.
  std::vector<int> cuts;  // As RecordOptions::cuts.
  PipelineSchedule schedule;
};

// INVALID_ARGUMENT: the pipeline's sizes are not legal. Validate reports all other violations of
// the job's sizes by field.
absl::StatusOr<Layout> LayoutOf(const JobConfig& job, const ModelConfig& model);

// What a checkpoint says of the ranks that have written it, which have this many threads each.
CheckpointLayout RecordedLayout(const JobConfig& job, int64_t threads);

}  // namespace trainyard
