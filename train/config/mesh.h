// How many ranks a job has along each axis.

#pragma once

#include "models/arch/config.h"
#include "models/parallel/mesh.h"
#include "train/config/job_config.h"

namespace trainyard {

// Returns the mesh with rank 0. The job's layout must be legal (validate_layout.h).
Mesh MeshOf(const JobConfig& job, const ModelConfig& model);

// Returns the mesh, with rank 0, of tensor ranks alone. Their number must be legal
// (ValidateTensorRanks in validate_layout.h).
Mesh MeshOfTensorRanks(int tensor, const ModelConfig& model);

}  // namespace trainyard
