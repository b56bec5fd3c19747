// The metric series of one job. They are made when the job is first placed, and removed some time
// after it has ended.

#pragma once

#include <prometheus/histogram.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "controller/jobs/job.h"
#include "controller/jobs/step_record.h"
#include "controller/metrics.h"

namespace trainyard::controller {

// The devices of a job's ranks.
struct DeviceFacts {
  std::string model;  // Empty if a worker has not come back yet.
  // All ranks together, for the job's precision, as the ranks report it.
  std::optional<double> peak_flops;
};

// Not thread-safe.
class JobSeries {
 public:
  JobSeries(ControllerMetrics& metrics, const Job& job);
  ~JobSeries();  // Removes every series.
  JobSeries(const JobSeries&) = delete;
  JobSeries& operator=(const JobSeries&) = delete;

  bool empty() const { return series_.empty(); }

  // Adds time that the job spent in steps before this controller started, for the goodput ratio.
  void AddEarlierSeconds(double seconds) { productive_seconds_ += seconds; }

  // `now` is a monotonic time: the wall clock may leap between two calls.
  void OnStep(const Job& job, const JobStep& step, const DeviceFacts& devices, bool repeated,
              absl::Duration now);
  void OnValidation(double loss);  // Of a step that was reported before.
  void OnSkipped();
  void OnCollectives(const std::vector<CollectiveUse>& uses);  // Uses by one rank.
  void OnFailedCheckpoint();
  void OnCheckpoint(const Checkpoint& checkpoint, absl::Duration duration);
  void OnChange(const Job& before, const Job& after, absl::Duration now);

 private:
  template <typename Metric, typename... Args>
  Metric& Series(prometheus::Family<Metric>& family, prometheus::Labels labels,
                 const Args&... args);
  void Remove(const ControllerMetrics::Gauges& family);
  void GoBack(const Job& job);
  void BeginCounters();
  void ShowTokens(const Job& job);
  void ShowWorkAtRisk(const Job& job);
  void Describe(const Job& job, const DeviceFacts& devices);

  ControllerMetrics& metrics_;
  const std::string job_id_;
  struct Made {
    void* metric = nullptr;
    std::function<void()> remove = nullptr;
  };
  std::map<std::string, Made> series_;                         // By family name and labels.
  std::set<std::pair<std::string, std::string>> collectives_;  // Operations and groups seen.
  bool begun_ = false, described_ = false;
  bool stepped_ = false;  // In the current attempt.
  double productive_seconds_ = 0;
  std::optional<absl::Duration> placed_, recovering_;  // Monotonic times.
};

}  // namespace trainyard::controller
