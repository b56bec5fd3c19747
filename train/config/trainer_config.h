// The trainer's config file: what to train (`job`), and which rank of it this process is (`rank`).
// docs/formats.md.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/device/exec.h"
#include "train/config/job_config.h"

namespace trainyard {

inline constexpr int64_t kTrainerConfigVersion = 1;

// One rank of a job's attempt, as its worker fills it in.
struct RankConfig {
  std::string job_id;
  int64_t epoch = 0;  // Attempt number, from 1 under the service.
  int64_t rank = 0;
  int64_t world = 1;
  DeviceKind device_kind = DeviceKind::kCpu;
  int64_t device = 0;       // Index on this machine, as the worker counts.
  std::string device_uuid;  // Of a GPU, "GPU-...": the only one that the process sees. May be "".
  int64_t threads = 1;      // OpenMP threads of this rank.
  std::vector<int64_t> processors;      // That are its alone; empty: it runs on any.
  std::string interface = "127.0.0.1";  // Address or device name for connections between ranks.
  std::vector<std::string> roots;       // Where paths of the job may lie; empty: anywhere.
  std::string socket;                   // Of the worker daemon; empty: none.
  std::string exit_report;              // Empty: none is written.
  // What the controller knows of earlier attempts. The checkpoint directory itself says what is to
  // be loaded; these fields show when that answer cannot be right.
  bool claimed = false;        // One of them has made the directory the job's own.
  int64_t recorded_step = 0;   // Of the furthest checkpoint that is recorded; 0: none is.
  int64_t history_after = 0;   // Every step up to it is recorded.
  int64_t recorded_epoch = 0;  // Of the newest attempt whose start is recorded; 0: none is.
  std::optional<int64_t> memory_bytes;  // Of its device; absent: as much as there is.
  std::optional<double>
      peak_flops;  // Per second, in the dtype of the job's products; absent: no MFU.
  std::optional<double> patience_seconds;  // Of the worker with a rank that makes no progress.
};

struct TrainerConfig {
  JobConfig job;
  std::optional<RankConfig> rank;  // Absent: alone, one rank of one.
};

}  // namespace trainyard
