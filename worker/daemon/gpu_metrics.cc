#include "worker/daemon/gpu_metrics.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "worker/daemon/nvml_adapter.h"

namespace trainyard {
namespace {

using Gauges = prometheus::Family<prometheus::Gauge>;

Gauges& Declare(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

prometheus::Labels LabelsOf(const Device& gpu) {
  return {{"gpu", absl::StrCat(gpu.gpu->index)}, {"UUID", gpu.gpu->uuid}};
}

// Without a value, removes the gauge.
void Set(Gauges& family, const prometheus::Labels& labels, std::optional<double> value) {
  if (value) {
    family.Add(labels).Set(*value);
  } else if (family.Has(labels)) {
    family.Remove(&family.Add(labels));
  }
}

}  // namespace

struct GpuMetrics::Families {
  explicit Families(prometheus::Registry& r)
      : utilization(
            Declare(r, "trainyard_gpu_utilization_ratio",
                    "Share of the time in which a kernel ran. Low while a job runs: the job waits "
                    "for data, peers or the host. High says nothing about speed.")),
        memory_used(Declare(
            r, "trainyard_gpu_memory_used_bytes",
            "Memory used by all processes. Not zero without a rank: a process is left over.")),
        memory(Declare(r, "trainyard_gpu_memory_bytes",
                       "Memory that programs can use. This is the plan's limit.")),
        power(Declare(r, "trainyard_gpu_power_watts",
                      "Power of the whole board. Far below the other GPUs under load: the GPU is "
                      "held down.")),
        sm_clock(Declare(
            r, "trainyard_gpu_sm_clock_hertz",
            "Clock of the multiprocessors. The lowest in a gang determines the step time.")),
        temperature(Declare(r, "trainyard_gpu_temperature_celsius",
                            "Temperature of the chip. Near 90 the GPU slows down.")),
        throttled(Declare(r, "trainyard_gpu_throttled",
                          "1 while the clock is held down for this reason. sw_power_cap is usual "
                          "under load. The hw_ and thermal reasons call for a technician.")),
        lost(Declare(r, "trainyard_gpu_lost",
                     "1: the GPU fell off the bus or needs a reset, and takes no more ranks. The "
                     "machine needs a reboot.")),
        last_reading(Declare(r, "trainyard_gpu_last_reading_timestamp_seconds",
                             "When the GPU was last read. More than a minute ago: the driver "
                             "hangs, or the GPU is lost, and its other gauges are old.")),
        xids(prometheus::BuildCounter()
                 .Name("trainyard_gpu_xid_errors_total")
                 .Help("The driver's reports of errors, by number. Programs cause 13, 31, 43 and "
                       "45. Hardware causes 48, 63, 64, 74, 79, 94 and 95.")
                 .Register(r)) {}

  Gauges& utilization;
  Gauges& memory_used;
  Gauges& memory;
  Gauges& power;
  Gauges& sm_clock;
  Gauges& temperature;
  Gauges& throttled;
  Gauges& lost;
  Gauges& last_reading;
  prometheus::Family<prometheus::Counter>& xids;
};

GpuMetrics::GpuMetrics(prometheus::Registry& registry)
    : families_(std::make_unique<Families>(registry)) {}

GpuMetrics::~GpuMetrics() = default;

void GpuMetrics::Show(const Device& gpu, const std::optional<GpuReading>& reading, absl::Time now) {
  const prometheus::Labels labels = LabelsOf(gpu);
  const GpuReading told = reading.value_or(GpuReading());
  Set(families_->utilization, labels, told.utilization);
  Set(families_->memory_used, labels, told.memory_used_bytes);
  Set(families_->memory, labels, double(gpu.memory_bytes));
  Set(families_->power, labels, told.power_watts);
  Set(families_->sm_clock, labels, told.sm_clock_hertz);
  Set(families_->temperature, labels, told.temperature_celsius);
  for (const char* reason : kGpuThrottleReasons) {
    prometheus::Labels with_reason = labels;
    with_reason["reason"] = reason;
    std::optional<double> held;
    if (reading) held = absl::c_linear_search(reading->throttle_reasons, reason) ? 1 : 0;
    Set(families_->throttled, with_reason, held);
  }
  if (reading) Set(families_->last_reading, labels, absl::ToDoubleSeconds(now - absl::UnixEpoch()));
}

void GpuMetrics::ShowLost(const Device& gpu, bool lost) {
  Set(families_->lost, LabelsOf(gpu), lost ? 1 : 0);
}

void GpuMetrics::XidHappened(const Device& gpu, uint64_t xid) {
  prometheus::Labels labels = LabelsOf(gpu);
  labels["xid"] = absl::StrCat(xid);
  families_->xids.Add(labels).Increment();
}

}  // namespace trainyard
