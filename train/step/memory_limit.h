// Checks that a device and its host have the memory that a rank's plan needs.

#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/device/exec.h"
#include "models/arch/config.h"
#include "models/program/plan.h"
#include "train/config/job_config.h"

namespace trainyard {

struct DeviceMemory {
  DeviceKind kind = DeviceKind::kCpu;
  size_t bytes = 0;

  // The part that a rank's plan may take. On a GPU, CUDA's context, the kernels' code, scratch
  // memory, graphs, and NCCL's buffers (those of groups, and of pairs that exchange messages) are
  // given 3 GiB beside the plan. On a CPU, the program and its libraries are given 4 %. Both are
  // estimates. NCCL takes its memory before the plan's is allocated (RankEngine::Create), so if
  // NCCL leaves too little, the job ends before the first step.
  size_t for_plan() const;
};

// FAILED_PRECONDITION: the plan needs more than memory.for_plan(). The message has the needed bytes
// and their uses, the limit, and the fields of the job that change the need.
absl::Status CheckMemory(const MemoryPlan& plan, const DeviceMemory& memory, const JobConfig& job,
                         const ModelConfig& model);

// The same for the part of the plan that lies in the host's memory, of which the rank may take
// `bytes`. Of these, a tenth is left to the rank's program, the data, and NVIDIA's libraries.
absl::Status CheckHostMemory(const MemoryPlan& plan, size_t bytes, const JobConfig& job);

}  // namespace trainyard
