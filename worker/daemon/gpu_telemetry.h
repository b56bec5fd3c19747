// How the GPUs of a daemon fare, read from NVML over and over: for the metrics page, and for the
// step records of the ranks on them.

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

// Thread-safe. Reads on a thread of its own, because NVML may block for as long as a GPU is in
// trouble: nobody else waits for it but the destructor.
class GpuTelemetry {
 public:
  static constexpr absl::Duration kInterval = absl::Seconds(2);

  // `gpus` as from GpuDevices. `metrics` is this object's alone, and outlives it.
  GpuTelemetry(std::unique_ptr<Nvml> nvml, std::vector<Device> gpus, GpuMetrics& metrics,
               absl::Duration interval = kInterval);
  ~GpuTelemetry();

  // Of the last round; nothing where the GPU could not be read, or the last round is long ago.
  std::optional<channel::GpuReading> Latest(uint32_t device) const;
  // Fell off the bus, or needs a reset, when it was last read.
  bool Lost(uint32_t device) const;

  // Begins a round at once, and returns its number.
  uint64_t ReadSoon();
  bool HasRead(uint64_t round) const;
  // The last XID error of the GPU that a finished round read, if it came after `since`: "XID 79 at
  // 2026-11-22T10:00:00Z". Else empty. A rank that began then and died may have died of it.
  std::string XidSince(uint32_t device, absl::Time since) const;

 private:
  struct State {
    std::optional<channel::GpuReading> reading = {};
    absl::Duration read_at = absl::ZeroDuration();  // On the monotonic clock.
    absl::Status status = {};                       // Of the last reading.
    uint64_t xid = 0;                               // The last; 0: there was none.
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
