// The metrics of a worker's own page. metrics.cc declares each once, with its help text;
// docs/metrics.md lists them. Only this page has series with a rank label. Series of a whole job
// are on the controller's page.

#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "prometheus/registry.h"
#include "worker/daemon/devices.h"
#include "worker/daemon/outbox.h"
#include "worker/daemon/reports.h"

namespace trainyard {

// The names, for metrics.cc and the tests.
namespace metric {
constexpr char kBuildInfo[] = "trainyard_build_info";
constexpr char kCertificateExpiry[] = "trainyard_certificate_expiry_timestamp_seconds";
constexpr char kDeviceInfo[] = "trainyard_device_info";
constexpr char kDeviceMemory[] = "trainyard_device_memory_bytes";
constexpr char kRankStepDuration[] = "trainyard_rank_step_duration_seconds";
constexpr char kRankWait[] = "trainyard_rank_wait_seconds_total";
constexpr char kReportsDropped[] = "trainyard_reports_dropped_total";
constexpr char kReportsLost[] = "trainyard_reports_lost_total";
}  // namespace metric

// Not thread-safe, but the registry may be collected at any time.
class WorkerMetrics {
 public:
  explicit WorkerMetrics(std::string hostname);
  ~WorkerMetrics();

  void RankStarted(const RankId& id, const Device& device);
  void StepFinished(const RankId& id, const channel::Step& step);
  // Keeps the series for one or two more scrapes. Expire removes them.
  void RankEnded(const RankId& id, absl::Duration now);
  void Expire(absl::Duration now);
  void OutboxDropped(const Outbox::Dropped& so_far);
  void SpoolDropped(uint64_t steps);
  // `kind`: damaged_line, missing_line or unreadable_file.
  void ReportsLost(const char* kind, uint64_t count);
  // May be called from any thread.
  void CertificateExpires(absl::Time time);

  const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }

 private:
  struct Families;
  struct Series;
  using Key = std::pair<std::string, uint32_t>;  // Job and rank. All attempts share their series.

  Series& Of(const RankId& id);

  const std::string hostname_;
  std::shared_ptr<prometheus::Registry> registry_;
  std::unique_ptr<Families> families_;
  std::map<Key, Series> series_;
};

}  // namespace trainyard
