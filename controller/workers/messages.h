// What the controller is told by workers and tells them, besides common/worker_messages.h.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/worker_messages.h"
#include "controller/jobs/job.h"
#include "controller/scheduler/scheduler.h"

namespace trainyard::controller {

struct Device : trainyard::Device {
  DeviceKind kind = DeviceKind::kCpu;
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

// Orders. They are sent again after a reconnect, so workers must accept repetitions.
struct Registered {
  absl::Duration heartbeat;
  absl::Duration lease;
};
using Order = std::variant<Registered, StartOrder, StopOrder, RendezvousValue>;

// Sends to one connected worker. Thread-safe. It never blocks and never calls back.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  virtual void Send(Order order) = 0;
  virtual void Close(absl::Status why) = 0;  // Ends the stream. Later calls do nothing.
  // The controller has not read all that the worker sent: earlier reports are not stored yet, or
  // the controller did not come to it.
  virtual bool holding() const = 0;
};

}  // namespace trainyard::controller
