// The state of this machine's GPUs on the worker's metrics page (docs/metrics.md): gauges by gpu
// and UUID. trainyard_device_info joins them with the job and the rank on the GPU. The values come
// from NVML (worker/daemon/gpu_telemetry.h).

#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "prometheus/registry.h"
#include "worker/channel/messages.h"
#include "worker/daemon/devices.h"

namespace trainyard {

// Not thread-safe, but the registry may be collected at any time. The registry must live as long.
class GpuMetrics {
 public:
  explicit GpuMetrics(prometheus::Registry& registry);
  ~GpuMetrics();

  // Sets the gauges of a GPU. Without a reading, removes all of them except the time of the last
  // one.
  void Show(const Device& gpu, const std::optional<GpuReading>& reading, absl::Time now);
  void ShowLost(const Device& gpu, bool lost);
  void XidHappened(const Device& gpu, uint64_t xid);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace trainyard
