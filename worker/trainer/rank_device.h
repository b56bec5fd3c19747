// The device that a rank computes on.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/load.h"
#include "kernels/device/backend.h"
#include "train/config/trainer_config.h"

namespace trainyard {

struct RankDevice {
  const Backend* backend = nullptr;
  decltype(CudaLibrary::create_nccl_world) create_nccl_world = nullptr;  // Of a GPU.
};

// FAILED_PRECONDITION where it is not there, or is not the GPU with `uuid` (LoadCuda).
absl::StatusOr<RankDevice> OpenDevice(DeviceKind kind, const std::string& uuid = "");

// What a config asks for; a job alone takes `wanted`: "cpu", "cuda", or "auto", which is the GPU
// where there is one and the job's precision runs there. INVALID_ARGUMENT for another word.
absl::StatusOr<RankDevice> DeviceOf(const TrainerConfig& config, absl::string_view wanted);

}  // namespace trainyard
