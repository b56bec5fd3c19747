// How the ranks of a job divide its model and its batch, from the job's configuration.

#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "models/arch/config.h"
#include "models/parallel/mesh.h"
#include "train/config/job_config.h"
#include "train/pipeline/schedule.h"

namespace trainyard {

struct Layout {
  Mesh mesh;              // Of rank 0.
  std::vector<int> cuts;  // As RecordOptions::cuts.
  PipelineSchedule schedule;
};

// Rank 0's.
Mesh MeshOf(const JobConfig& job, const ModelConfig& model);

// Errors are violations of the job's sizes that Validate reports by field; here only those of the
// pipeline are left: INVALID_ARGUMENT.
absl::StatusOr<Layout> LayoutOf(const JobConfig& job, const ModelConfig& model);

}  // namespace trainyard
