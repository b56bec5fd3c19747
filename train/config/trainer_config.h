// The trainer's config file (docs/formats.md): the job to train (`job`), and the rank that this
// process is (`rank`).

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/device/exec.h"
#include "train/config/job_config.h"

namespace trainyard {

inline constexpr int64_t kTrainerConfigVersion = 1;

// One rank of a job's attempt. The worker fills it in.
struct RankConfig {
  std::string job_id;
  bool alone = false;  // No worker has started the rank (AloneRank).
  int64_t epoch = 0;   // Attempt number, from 1 under the service.
  int64_t rank = 0;
  int64_t world = 1;
  DeviceKind device_kind = DeviceKind::kCpu;
  int64_t device = 0;                   // Index on this machine, as the worker numbers devices.
  std::string device_uuid;              // The only GPU that the process sees, "GPU-..."; may be "".
  int64_t threads = 1;                  // OpenMP threads of this rank.
  std::vector<int64_t> processors;      // Used by this rank only; empty: any.
  std::string interface = "127.0.0.1";  // Address or device name for connections between ranks.
  std::vector<std::string> roots;       // The job's paths must lie in these; empty: anywhere.
  std::string socket;                   // The worker daemon's; empty: none.
  std::string exit_report;              // Path; empty: no report is written.
  // The facts that the controller knows of earlier attempts. The checkpoint directory itself says
  // what is to be loaded; these fields show when that answer cannot be right.
  bool claimed = false;        // An earlier attempt has made this job the directory's owner.
  int64_t recorded_step = 0;   // The furthest recorded checkpoint; 0: none.
  int64_t history_after = 0;   // All steps up to this one are recorded.
  int64_t recorded_epoch = 0;  // The newest attempt whose start is recorded; 0: none.
  std::optional<int64_t> memory_bytes;  // The device's limit; absent: none.
  std::optional<double>
      peak_flops;  // Per second, in the dtype of the job's products; absent: no MFU.
  std::optional<double> patience_seconds;  // How long the worker waits for a rank without progress.
};

struct TrainerConfig {
  JobConfig job;
  std::optional<RankConfig> rank;  // Absent: the trainer runs alone, one rank of one.
};

}  // namespace trainyard
