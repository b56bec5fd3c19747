// What workers and the controller tell each other, without the wire.

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
  uint32_t index = 0;  // NVML's.
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
  std::vector<PeakRate> peaks;  // Empty where unknown.
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
  std::string grant_id = {};  // By which it was let in; empty: it runs on this machine.
  std::vector<Device> devices;
  std::vector<std::string> roots;   // Where it admits paths of jobs.
  std::vector<RankStatus> running;  // Tells presence alone.
  std::string metrics_url;
  // How long ranks may outlive the worker's daemon: its stream may be closed for so long.
  absl::Duration detach;
};

struct CheckpointReport {
  std::string job_id;
  Checkpoint checkpoint;
  absl::Duration duration;
  std::vector<CheckpointId> retained;
  std::string error = {};  // Not empty: the save failed.
};

// Orders. Sent again after a reconnect, so each is idempotent on the worker.
struct Registered {
  absl::Duration heartbeat;
  absl::Duration lease;
};
struct StartOrder {
  std::string worker_id;
  Snapshot job;                // Its ranks on this worker are to start; epoch and config are in it.
  uint64_t history_after = 0;  // Every step up to it is stored.
  std::vector<std::string> roots = {};  // Of the job's namespace, as they are now; empty: anywhere.
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

// The way to one connected worker. Thread-safe; never blocks and never calls back.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  virtual void Send(Order order) = 0;
  virtual void Close(absl::Status why) = 0;  // Ends the stream; later calls do nothing.
  // Nothing is read from the worker for now, because what it has said is not stored yet.
  virtual bool holding() const = 0;
};

}  // namespace trainyard::controller
