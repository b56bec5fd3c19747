#include "worker/daemon/metrics.h"

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"

namespace trainyard {
namespace {

// Ten scrapes at Prometheus' usual half minute.
constexpr absl::Duration kKeepSeries = absl::Minutes(5);

std::vector<double> StepBuckets() {
  std::vector<double> bounds;
  for (double bound = 1e-3; bound < 200; bound *= 2) bounds.push_back(bound);
  return bounds;
}

template <typename Builder>
auto& Declare(Builder builder, const char* name, const char* help,
              const std::shared_ptr<prometheus::Registry>& registry) {
  return builder.Name(name).Help(help).Register(*registry);
}

}  // namespace

struct WorkerMetrics::Families {
  explicit Families(const std::shared_ptr<prometheus::Registry>& registry)
      : build_info(Declare(prometheus::BuildGauge(), metric::kBuildInfo,
                           "Always 1; the labels say which build this is. If the workers of a "
                           "cluster differ, an upgrade is not complete.",
                           registry)),
        certificate_expiry(Declare(prometheus::BuildGauge(), metric::kCertificateExpiry,
                                   "When this worker's certificate expires. Soon: it is not "
                                   "renewed, and the controller will refuse this worker. Absent: "
                                   "no TLS.",
                                   registry)),
        device_info(Declare(prometheus::BuildGauge(), metric::kDeviceInfo,
                            "Always 1; the labels say which rank runs on which device. Joins on "
                            "UUID and Hostname with the DCGM exporter's series.",
                            registry)),
        device_memory(Declare(
            prometheus::BuildGauge(), metric::kDeviceMemory,
            "Memory of a rank. Kind planned is the memory of its plan. Kind peak is the memory "
            "that it uses: on a CPU the most that was resident, on a GPU the decrease of free "
            "memory since it was opened. A peak far above the plan is a leak.",
            registry)),
        step_duration(Declare(
            prometheus::BuildHistogram(), metric::kRankStepDuration,
            "Time of one rank's steps. A rank that is slower than its peers delays the whole job.",
            registry)),
        wait(Declare(prometheus::BuildCounter(), metric::kRankWait,
                     "Time in which a rank only waited for its peers. The other ranks wait for the "
                     "rank that waits least.",
                     registry)),
        dropped(Declare(prometheus::BuildCounter(), metric::kReportsDropped,
                        "Reports dropped at a limit while the controller was away. Kinds step and "
                        "log_line never reach the controller; spooled_step does only if this "
                        "daemon does not end before.",
                        registry)),
        dropped_steps(dropped.Add({{"kind", "step"}})),
        dropped_log_lines(dropped.Add({{"kind", "log_line"}})),
        dropped_spooled_steps(dropped.Add({{"kind", "spooled_step"}})),
        lost(Declare(prometheus::BuildCounter(), metric::kReportsLost,
                     "Reports of ranks that an earlier daemon or a trainer kept on disk and that "
                     "could not be read again. More than zero: the disk or its memory is faulty, "
                     "and a job's history has holes; the log names the files.",
                     registry)) {
    for (const char* kind : {"damaged_line", "missing_line", "unreadable_file"}) {
      lost.Add({{"kind", kind}});  // Zero is shown, too.
    }
  }

  prometheus::Family<prometheus::Gauge>& build_info;
  prometheus::Family<prometheus::Gauge>& certificate_expiry;
  prometheus::Family<prometheus::Gauge>& device_info;
  prometheus::Family<prometheus::Gauge>& device_memory;
  prometheus::Family<prometheus::Histogram>& step_duration;
  prometheus::Family<prometheus::Counter>& wait;
  prometheus::Family<prometheus::Counter>& dropped;
  prometheus::Counter& dropped_steps;
  prometheus::Counter& dropped_log_lines;
  prometheus::Counter& dropped_spooled_steps;
  prometheus::Family<prometheus::Counter>& lost;
};

struct WorkerMetrics::Series {
  prometheus::Gauge* info = nullptr;
  prometheus::Gauge* planned_memory = nullptr;
  prometheus::Gauge* peak_memory = nullptr;
  prometheus::Histogram* step_duration = nullptr;
  prometheus::Counter* wait = nullptr;
  std::optional<absl::Duration> ended;
};

WorkerMetrics::WorkerMetrics(std::string hostname)
    : hostname_(std::move(hostname)),
      registry_(std::make_shared<prometheus::Registry>()),
      families_(std::make_unique<Families>(registry_)) {
  // No trainer of this build uses NCCL. Future joins will use the label.
  families_->build_info
      .Add({{"version", Version()},
            {"revision", Revision()},
            {"cuda", CudaVersion()},
            {"nccl", "none"}})
      .Set(1);
}

WorkerMetrics::~WorkerMetrics() = default;

WorkerMetrics::Series& WorkerMetrics::Of(const RankId& id) {
  Series& series = series_[{id.job_id, id.rank}];
  series.ended.reset();
  return series;
}

void WorkerMetrics::RankStarted(const RankId& id, const Device& device) {
  Series& series = Of(id);
  if (series.info != nullptr) families_->device_info.Remove(series.info);
  const uint32_t index = device.gpu ? device.gpu->index : device.index;
  const std::string uuid = device.gpu ? device.gpu->uuid : absl::StrCat("cpu-", index);
  series.info = &families_->device_info.Add({{"job_id", id.job_id},
                                             {"rank", absl::StrCat(id.rank)},
                                             {"gpu", absl::StrCat(index)},
                                             {"UUID", uuid},
                                             {"Hostname", hostname_}});
  series.info->Set(1);
}

void WorkerMetrics::StepFinished(const RankId& id, const channel::Step& step) {
  Series& series = Of(id);
  if (series.step_duration == nullptr) {
    const prometheus::Labels labels = {{"job_id", id.job_id}, {"rank", absl::StrCat(id.rank)}};
    auto with_kind = [&](const char* kind) {
      prometheus::Labels all = labels;
      all["kind"] = kind;
      return all;
    };
    series.step_duration = &families_->step_duration.Add(labels, StepBuckets());
    series.wait = &families_->wait.Add(labels);
    series.planned_memory = &families_->device_memory.Add(with_kind("planned"));
    series.peak_memory = &families_->device_memory.Add(with_kind("peak"));
  }
  series.step_duration->Observe(step.seconds);
  if (step.phases.grad_sync > 0) series.wait->Increment(step.phases.grad_sync);
  series.planned_memory->Set(double(step.memory_planned_bytes));
  series.peak_memory->Set(double(step.memory_bytes));
}

void WorkerMetrics::RankEnded(const RankId& id, absl::Duration now) {
  const auto it = series_.find({id.job_id, id.rank});
  if (it != series_.end()) it->second.ended = now;
}

void WorkerMetrics::OutboxDropped(const Outbox::Dropped& so_far) {
  const auto raise = [](prometheus::Counter& counter, uint64_t to) {
    counter.Increment(double(to) - counter.Value());
  };
  raise(families_->dropped_steps, so_far.steps);
  raise(families_->dropped_log_lines, so_far.log_lines);
}

void WorkerMetrics::SpoolDropped(uint64_t steps) {
  families_->dropped_spooled_steps.Increment(double(steps));
}

void WorkerMetrics::ReportsLost(const char* kind, uint64_t count) {
  families_->lost.Add({{"kind", kind}}).Increment(double(count));
}

void WorkerMetrics::CertificateExpires(absl::Time time) {
  families_->certificate_expiry.Add({}).Set(absl::ToDoubleSeconds(time - absl::UnixEpoch()));
}

void WorkerMetrics::Expire(absl::Duration now) {
  for (auto it = series_.begin(); it != series_.end();) {
    const Series& series = it->second;
    if (!series.ended || now - *series.ended < kKeepSeries) {
      ++it;
      continue;
    }
    if (series.info != nullptr) families_->device_info.Remove(series.info);
    if (series.step_duration != nullptr) {
      families_->step_duration.Remove(series.step_duration);
      families_->wait.Remove(series.wait);
      families_->device_memory.Remove(series.planned_memory);
      families_->device_memory.Remove(series.peak_memory);
    }
    it = series_.erase(it);
  }
}

}  // namespace trainyard
