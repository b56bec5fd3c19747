// How the GPUs of a daemon fare, read from NVML over and over: for the metrics page, and for the
// step records of the ranks on them.

#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "worker/daemon/devices.h"
#include "worker/daemon/nvml_adapter.h"
#include "worker/gpu_metrics.h"

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

 private:
  struct State {
    std::optional<channel::GpuReading> reading = {};
    absl::Duration read_at = absl::ZeroDuration();  // On the monotonic clock.
    absl::Status status = {};                       // Of the last reading.
  };

  void Run();
  void ReadAll();
  void ReadXids();

  const std::unique_ptr<Nvml> nvml_;
  const std::vector<Device> gpus_;
  GpuMetrics& metrics_;
  const absl::Duration interval_;

  mutable std::mutex mutex_;
  std::vector<State> states_;  // Guarded by mutex_, as is closing_. By device.
  bool closing_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace trainyard
