// The part of a trainer's config file that is about the rank (docs/formats.md). The worker writes
// it, and train/config/parse.cc reads it.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/device_kind.h"

namespace trainyard {

inline constexpr int64_t kTrainerConfigVersion = 1;

// What the controller says in StartOrder, and the worker copies into each rank's RankConfig.
struct AttemptFacts {
  std::string job_id;
  int64_t epoch = 0;               // Attempt number, from 1 under the service.
  int64_t world = 1;               // Ranks of the attempt.
  std::vector<std::string> roots;  // The job's paths must lie in these; empty: anywhere.
  // The facts that the controller knows of earlier attempts. The checkpoint directory itself says
  // what is to be loaded; these fields show when that answer cannot be right.
  bool claimed = false;        // An earlier attempt has made this job the directory's owner.
  int64_t recorded_step = 0;   // The furthest recorded checkpoint; 0: none.
  int64_t history_after = 0;   // All steps up to this one are recorded.
  int64_t recorded_epoch = 0;  // The newest attempt whose start is recorded; 0: none.
};

// One rank of a job's attempt. The worker fills it in.
struct RankConfig : AttemptFacts {
  bool alone = false;  // No worker has started the rank (AloneRank). Not written.
  int64_t rank = 0;
  DeviceKind device_kind = DeviceKind::kCpu;
  int64_t device = 0;                   // Index on this machine, as the worker numbers devices.
  std::string device_uuid;              // The only GPU that the process sees, "GPU-..."; may be "".
  int64_t threads = 1;                  // OpenMP threads of this rank.
  std::vector<int64_t> processors;      // Used by this rank only; empty: any.
  std::string interface = "127.0.0.1";  // Address or device name for connections between ranks.
  std::string socket;                   // The worker daemon's; empty: none.
  std::string exit_report;              // Path; empty: no report is written.
  std::optional<int64_t> memory_bytes;  // The device's limit; absent: none.
  // Of a GPU's rank: the limit of what it may take of the host's memory; absent: none.
  std::optional<int64_t> host_memory_bytes;
  // Per second. The trainer takes the peak of the dtype of the job's products as `peak_flops`,
  // which daemons of the last release wrote instead. Absent: no MFU.
  std::map<std::string, double> peak_flops_by_dtype;
  std::optional<double> peak_flops;
  std::optional<double> patience_seconds;  // How long the worker waits for a rank without progress.
};

// Whole fields are 0 or more.
void VisitFields(auto& v, AttemptFacts& m) {
  v("job_id", m.job_id), v.Whole("epoch", m.epoch), v.Whole("world", m.world);
  v("roots", m.roots), v("claimed", m.claimed), v.Whole("recorded_step", m.recorded_step);
  v.Whole("history_after", m.history_after), v.Whole("recorded_epoch", m.recorded_epoch);
}
void VisitFields(auto& v, RankConfig& m) {
  VisitFields(v, static_cast<AttemptFacts&>(m)), v.Whole("rank", m.rank);
  v.Whole("device", m.device), v("device_uuid", m.device_uuid);
  v.Named("device_kind", m.device_kind, {DeviceKind::kCpu, DeviceKind::kCuda});
  v.Whole("threads", m.threads), v("processors", m.processors), v("interface", m.interface);
  v("socket", m.socket), v("exit_report", m.exit_report);
  v("memory_bytes", m.memory_bytes), v("host_memory_bytes", m.host_memory_bytes);
  v("peak_flops_by_dtype", m.peak_flops_by_dtype), v("peak_flops", m.peak_flops);
  v("patience_seconds", m.patience_seconds);
}

}  // namespace trainyard
