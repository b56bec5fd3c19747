// Reads the state of a daemon's GPUs from NVML at regular intervals, for the metrics page and for
// the step records of the ranks on them.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "worker/daemon/devices.h"
#include "worker/daemon/gpu_metrics.h"
#include "worker/daemon/nvml_adapter.h"

namespace trainyard {

// Thread-safe. Reads on a thread of its own, because NVML may block as long as a GPU is in trouble.
// Only the destructor waits for this thread.
class GpuTelemetry {
 public:
  static constexpr absl::Duration kInterval = absl::Seconds(2);

  // `gpus` comes from GpuDevices. Only this object may use `metrics`, which must outlive it.
  GpuTelemetry(std::unique_ptr<Nvml> nvml, std::vector<Device> gpus, GpuMetrics& metrics,
               absl::Duration interval = kInterval);
  ~GpuTelemetry();

  // Returns the reading of the last round. Absent: the GPU could not be read, or the last round is
  // long ago.
  std::optional<GpuReading> Latest(uint32_t device) const;
  // Whether the GPU had fallen off the bus or needed a reset when it was last read.
  bool Lost(uint32_t device) const;

  // Starts a round at once, and returns its number.
  uint64_t ReadSoon();
  bool HasRead(uint64_t round) const;
  // Returns the last XID error of the GPU that a finished round has read, if it came after `since`:
  // "XID 79 at 2026-11-22T10:00:00Z". Otherwise empty. A rank that was started at `since` and died
  // may have died of this error.
  std::string XidSince(uint32_t device, absl::Time since) const;

 private:
  struct State {
    std::optional<GpuReading> reading = {};
    absl::Duration read_at = absl::ZeroDuration();  // A monotonic time.
    absl::Status status = {};                       // Of the last reading.
    uint64_t xid = 0;                               // The last XID; 0: there was none.
    absl::Time xid_time = absl::InfinitePast();
  };

  void Run();
  void ReadAll();
  void ReadXids();

  const std::unique_ptr<Nvml> nvml_;
  const std::vector<Device> gpus_;
  GpuMetrics& metrics_;
  const absl::Duration interval_;

  mutable Mutex mutex_;
  std::vector<State> states_ ABSL_GUARDED_BY(mutex_);                               // By device.
  uint64_t begun_ ABSL_GUARDED_BY(mutex_) = 0, ended_ ABSL_GUARDED_BY(mutex_) = 0;  // Rounds.
  bool hurry_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar wake_;
  std::thread thread_;
};

}  // namespace trainyard
