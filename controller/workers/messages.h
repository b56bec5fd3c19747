// The messages between workers and the controller, independent of their encoding.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "controller/jobs/job.h"
#include "controller/scheduler/scheduler.h"

namespace trainyard::controller {

struct PeakRate {
  std::string dtype;  // "f32", "bf16", "f64"
  double flops = 0;   // Per second.
  bool measured = false;
};

struct Gpu {
  uint32_t index = 0;  // The index that NVML uses.
  std::string uuid;
  std::string driver_version;
  std::string compute_capability;
};

struct Device {
  uint32_t index = 0;
  DeviceKind kind = DeviceKind::kCpu;
  std::string model;
  uint64_t memory_bytes = 0;
  uint32_t threads = 0;
  std::vector<PeakRate> peaks;  // Empty: unknown.
  std::optional<Gpu> gpu;
};

struct RankStatus {
  std::string job_id;
  uint64_t epoch = 0;
  uint32_t rank = 0;
  uint32_t device = 0;
  RankState state = RankState::kStarting;
  ExitCause cause = ExitCause::kNone;
  int signal = 0;
  int exit_code = 0;
  std::string message;
  std::optional<Resumed> resumed;
};

struct Registration {
  std::string worker_id;
  std::string instance_id;
  std::string hostname;
  std::string version;
  // The grant of the worker's certificate; empty: the worker runs on this machine.
  std::string grant_id = {};
  std::vector<Device> devices;
  std::vector<std::string> roots;   // Directories below which the worker accepts paths of jobs.
  std::vector<RankStatus> running;  // The ranks that exist; their states come in reports.
  std::string metrics_url;
  // How long the ranks may outlive the worker's daemon, and so how long its stream may be closed.
  absl::Duration detach;
};

struct CheckpointReport {
  std::string job_id;
  Checkpoint checkpoint;
  absl::Duration duration;
  std::vector<CheckpointId> retained;
  std::string error = {};  // Not empty: the save failed.
};

// Orders. They are sent again after a reconnect, so workers must accept repetitions.
struct Registered {
  absl::Duration heartbeat;
  absl::Duration lease;
};
struct StartOrder {
  std::string worker_id;
  Snapshot job;                // The job's ranks on this worker must start. Has epoch and config.
  uint64_t history_after = 0;  // Every step up to this one is stored.
  // The present roots of the job's namespace; empty: paths may lie anywhere.
  std::vector<std::string> roots = {};
};
struct StopOrder {
  std::string job_id;
  uint64_t epoch = 0;
  StopMode mode = StopMode::kKill;
};
struct RendezvousValue {
  std::string job_id;
  uint64_t epoch = 0;
  std::string key;
  std::string value;
};
using Order = std::variant<Registered, StartOrder, StopOrder, RendezvousValue>;

// Sends to one connected worker. Thread-safe. It never blocks and never calls back.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  virtual void Send(Order order) = 0;
  virtual void Close(absl::Status why) = 0;  // Ends the stream. Later calls do nothing.
  // Reading from the worker is paused, because its earlier reports are not stored yet.
  virtual bool holding() const = 0;
};

}  // namespace trainyard::controller
