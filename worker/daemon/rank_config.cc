#include "worker/daemon/rank_config.h"

#include "absl/strings/str_cat.h"
#include "common/json.h"

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

absl::StatusOr<std::string> TrainerConfig(const RankConfig& config,
                                          const RankDirectory& directory) {
  json job = ParseJson(config.order.job_config);
  if (!job.is_object()) {
    return absl::InvalidArgumentError("the order's job config is not a JSON object");
  }
  json peaks = json::object();
  for (const PeakRate& peak : config.device.peaks) peaks[peak.dtype] = peak.flops;
  json rank = {{"job_id", config.order.job_id},
               {"epoch", config.order.epoch},
               {"rank", config.rank.rank},
               {"world", config.order.world},
               {"device_kind", config.device.gpu ? "CUDA" : "CPU"},
               {"device", config.rank.device},
               {"threads", config.device.threads},
               {"processors", config.device.processors},
               {"memory_bytes", config.device.memory_bytes},
               {"peak_flops_by_dtype", std::move(peaks)},
               {"interface", config.interface},
               {"roots", config.roots},
               {"socket", directory.File("socket")},
               {"exit_report", absl::StrCat(directory.path(), "/trainer/trainer_exit.json")},
               {"patience_seconds", absl::ToDoubleSeconds(config.patience.step())},
               {"claimed", config.order.claimed},
               {"recorded_step", config.order.recorded_step},
               {"history_after", config.order.history_after},
               {"recorded_epoch", config.order.recorded_epoch}};
  if (config.device.gpu) rank["device_uuid"] = config.device.gpu->uuid;
  const json whole = {{"version", 1}, {"job", std::move(job)}, {"rank", std::move(rank)}};
  return JsonText(whole, 2) + "\n";
}

}  // namespace trainyard
