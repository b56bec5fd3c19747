#include "worker/trainer/rank_device.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "train/config/precision.h"

namespace trainyard {

absl::StatusOr<RankDevice> OpenDevice(DeviceKind kind, const std::string& uuid) {
  if (kind == DeviceKind::kCpu) return RankDevice{.backend = &CpuBackend()};
  ASSIGN_OR_RETURN(const CudaLibrary cuda, LoadCuda(uuid));
  return RankDevice{.backend = cuda.backend, .create_nccl_world = cuda.create_nccl_world};
}

absl::StatusOr<RankDevice> DeviceNamed(absl::string_view wanted) {
  if (wanted == "cpu") return OpenDevice(DeviceKind::kCpu);
  if (wanted == "cuda") return OpenDevice(DeviceKind::kCuda);
  if (wanted != "auto") {
    return absl::InvalidArgumentError(
        absl::StrCat("--device: wanted auto, cpu or cuda, found '", wanted, "'"));
  }
  const absl::StatusOr<RankDevice> gpu = OpenDevice(DeviceKind::kCuda);
  if (gpu.ok()) return gpu;
  LogInfo("runs_on_cpu", {{"reason", gpu.status().message()}});
  return OpenDevice(DeviceKind::kCpu);
}

absl::StatusOr<RankDevice> DeviceOf(const TrainerConfig& config, absl::string_view wanted) {
  if (config.rank) return OpenDevice(config.rank->device_kind, config.rank->device_uuid);
  const PrecisionRow& precision = RowOf(config.job.precision);
  if (precision.RunsOn(DeviceKind::kCuda)) return DeviceNamed(wanted);
  if (wanted == "cuda") {
    return absl::InvalidArgumentError(absl::StrCat(
        "precision: wanted ", absl::StrJoin(PrecisionNamesOn(DeviceKind::kCuda), " or "),
        ", which a GPU computes, found ", precision.name));
  }
  return DeviceNamed(wanted == "auto" ? "cpu" : wanted);
}

}  // namespace trainyard
