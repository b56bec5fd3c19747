// How this machine's GPUs fare, on the worker's page (docs/metrics.md): gauges by gpu and UUID,
// which trainyard_device_info joins with the job and rank on it. The values are NVML's
// (worker/daemon/gpu_telemetry.h).

#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "prometheus/registry.h"
#include "worker/channel/messages.h"
#include "worker/daemon/devices.h"

namespace trainyard {

// Not thread-safe; the registry, which must live as long, may be collected from meanwhile.
class GpuMetrics {
 public:
  explicit GpuMetrics(prometheus::Registry& registry);
  ~GpuMetrics();

  // Without a reading the gauges of what it would say go, but for the time of the last one.
  void Show(const Device& gpu, const std::optional<channel::GpuReading>& reading, absl::Time now);
  void ShowLost(const Device& gpu, bool lost);
  void XidHappened(const Device& gpu, uint64_t xid);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace trainyard
