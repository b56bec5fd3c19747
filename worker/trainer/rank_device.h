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
  decltype(CudaLibrary::create_nccl_world) create_nccl_world = nullptr;  // Set for a GPU.
};

// FAILED_PRECONDITION: the device does not exist, or it is not the GPU with `uuid` (LoadCuda).
absl::StatusOr<RankDevice> OpenDevice(DeviceKind kind, const std::string& uuid = "");

// Opens the device of this name: "cpu", "cuda", or "auto", which is the GPU if there is one.
// INVALID_ARGUMENT: `wanted` is another word.
absl::StatusOr<RankDevice> DeviceNamed(absl::string_view wanted);

// Opens the device that the config of a worker names. A job without a worker uses `wanted`: "cpu",
// "cuda", or "auto", which is the GPU if there is one and it can run the job's precision.
// INVALID_ARGUMENT: `wanted` is another word.
absl::StatusOr<RankDevice> DeviceOf(const TrainerConfig& config, absl::string_view wanted);

}  // namespace trainyard
