#include "worker/daemon/gpu_telemetry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace trainyard {
namespace {

// A reading that is older than this many rounds says nothing about the present.
constexpr int kStaleRounds = 5;
// A driver with more in one round repeats itself. The rest is read in the next round.
constexpr int kXidsPerRound = 64;

}  // namespace

GpuTelemetry::GpuTelemetry(std::unique_ptr<Nvml> nvml, std::vector<Device> gpus,
                           GpuMetrics& metrics, absl::Duration interval)
    : nvml_(std::move(nvml)),
      gpus_(std::move(gpus)),
      metrics_(metrics),
      interval_(interval),
      states_(gpus_.size()),
      thread_([this] { Run(); }) {}

GpuTelemetry::~GpuTelemetry() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
}

std::optional<GpuReading> GpuTelemetry::Latest(uint32_t device) const {
  const MutexLock lock(mutex_);
  if (device >= states_.size()) return std::nullopt;
  const State& state = states_[device];
  if (RealClock().Monotonic() - state.read_at > kStaleRounds * interval_) return std::nullopt;
  return state.reading;
}

bool GpuTelemetry::Lost(uint32_t device) const {
  const MutexLock lock(mutex_);
  return device < states_.size() && absl::IsUnavailable(states_[device].status);
}

uint64_t GpuTelemetry::ReadSoon() {
  const MutexLock lock(mutex_);
  hurry_ = true;
  wake_.NotifyAll();
  return begun_ + 1;
}

bool GpuTelemetry::HasRead(uint64_t round) const {
  const MutexLock lock(mutex_);
  return ended_ >= round;
}

std::string GpuTelemetry::XidSince(uint32_t device, absl::Time since) const {
  const MutexLock lock(mutex_);
  if (device >= states_.size()) return "";
  const State& state = states_[device];
  if (state.xid_time < since) return "";
  return absl::StrCat("XID ", state.xid, " at ",
                      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", state.xid_time, absl::UTCTimeZone()));
}

void GpuTelemetry::Run() {
  for (const Device& gpu : gpus_) {
    if (const absl::Status status = nvml_->WatchXids(gpu.gpu->index); !status.ok()) {
      LogWarning("xids_unknown", {{"uuid", gpu.gpu->uuid}, {"error", status.message()}});
    }
  }
  for (;;) {
    MutexLock lock(mutex_);
    hurry_ = false;
    ++begun_;
    lock.Unlock();
    ReadAll();
    ReadXids();
    lock.Lock();
    ended_ = begun_;
    const absl::Duration next = RealClock().Monotonic() + interval_;
    while (!closing_ && !hurry_ && wake_.WaitUntil(mutex_, next)) continue;
    if (closing_) return;
  }
}

void GpuTelemetry::ReadAll() {
  for (size_t i = 0; i < gpus_.size(); ++i) {
    const Device& gpu = gpus_[i];
    const absl::StatusOr<GpuReading> read = nvml_->Read(gpu.gpu->index);
    std::optional<GpuReading> reading;
    if (read.ok()) reading = *read;
    metrics_.Show(gpu, reading, RealClock().Now());
    metrics_.ShowLost(gpu, absl::IsUnavailable(read.status()));
    const MutexLock lock(mutex_);
    if (read.status() != states_[i].status) {
      LogWarning(
          read.ok() ? "gpu_read_again" : "gpu_not_read",
          {{"gpu", gpu.gpu->index}, {"uuid", gpu.gpu->uuid}, {"why", read.status().message()}});
    }
    states_[i].reading = std::move(reading);
    states_[i].read_at = RealClock().Monotonic();
    states_[i].status = read.status();
  }
}

void GpuTelemetry::ReadXids() {
  for (int i = 0; i < kXidsPerRound; ++i) {
    const absl::StatusOr<std::optional<GpuXid>> next = nvml_->NextXid();
    if (!next.ok() || !*next)
      // The event set fails if one of its GPUs does, which ReadAll reports.
      return;
    for (size_t device = 0; device < gpus_.size(); ++device) {
      const Device& gpu = gpus_[device];
      if (gpu.gpu->index != (*next)->index) continue;
      LogError("gpu_xid",
               {{"xid", (*next)->xid}, {"gpu", gpu.gpu->index}, {"uuid", gpu.gpu->uuid}});
      metrics_.XidHappened(gpu, (*next)->xid);
      const MutexLock lock(mutex_);
      states_[device].xid = (*next)->xid;
      states_[device].xid_time = RealClock().Now();
    }
  }
}

}  // namespace trainyard
