#include "worker/daemon/rank_config.h"

#include "common/json_fields.h"
#include "common/rank_config.h"

namespace trainyard {

using nlohmann::json;

std::vector<std::string> DirectoriesOf(const StartOrder& order) {
  const json job = ParseJson(order.job_config);
  std::vector<std::string> directories;
  for (const char* section : {"checkpoint", "profile"}) {
    // If the checkpoint directory has been claimed and is missing, a share is not mounted. So it is
    // not made.
    if (!job.is_object() || (order.claimed && section == std::string("checkpoint"))) continue;
    const auto found = job.find(section);
    if (found == job.end() || !found->is_object()) continue;
    const auto directory = found->find("directory");
    if (directory != found->end() && directory->is_string()) directories.push_back(*directory);
  }
  return directories;
}

absl::StatusOr<std::string> TrainerConfigText(const DaemonOptions& options, const StartOrder& order,
                                              const RankPlacement& rank,
                                              const RankDirectory& directory) {
  json job = ParseJson(order.job_config);
  if (!job.is_object()) {
    return absl::InvalidArgumentError("the order's job config is not a JSON object");
  }
  const Device& device = options.devices[rank.device];
  RankConfig config;
  static_cast<AttemptFacts&>(config) = order;
  config.rank = rank.rank;
  config.device_kind = device.gpu ? DeviceKind::kCuda : DeviceKind::kCpu;
  config.device = rank.device;
  config.device_uuid = device.gpu ? device.gpu->uuid : "";
  config.threads = device.threads;
  config.processors = {device.processors.begin(), device.processors.end()};
  config.interface = options.interface;
  config.socket = directory.File("socket");
  config.exit_report = directory.File("trainer/trainer_exit.json");
  config.memory_bytes = int64_t(device.memory_bytes);
  if (device.gpu) config.host_memory_bytes = int64_t(device.host_memory_bytes);
  config.patience_seconds = absl::ToDoubleSeconds(options.patience.step());
  for (const PeakRate& peak : device.peaks) config.peak_flops_by_dtype[peak.dtype] = peak.flops;
  json whole = {{"version", kTrainerConfigVersion}, {"job", std::move(job)}};
  WriteFields(whole["rank"], config);
  return JsonText(whole, 2) + "\n";
}

}  // namespace trainyard
