// Declares each metric of the controller once: its name, its labels, and what a bad value means.
// docs/metrics.md lists them. book/job_series.h makes and removes the series of one job.

#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <string>

#include "common/step_numbers.h"

namespace trainyard::controller {

// Thread-safe, as prometheus-cpp is.
class ControllerMetrics {
 public:
  using Counters = prometheus::Family<prometheus::Counter>;
  using Gauges = prometheus::Family<prometheus::Gauge>;
  using Histograms = prometheus::Family<prometheus::Histogram>;

  // Counters begin at zero. A counter that is absent before its first event hides this event from
  // Prometheus' rate() and increase().
  explicit ControllerMetrics(prometheus::Registry& registry) : registry_(registry) {
    jobs_submitted_total.Add({});
    store_backup_failures_total.Add({});
    for (const char* outcome : {"succeeded", "failed", "cancelled"}) {
      jobs_finished_total.Add({{"outcome", outcome}});
    }
    for (const char* report : {"step", "event", "log"}) {
      reports_refused_total.Add({{"report", report}});
    }
    for (const char* reason : {"credential", "role", "method", "rate"}) {
      calls_refused_total.Add({{"reason", reason}});
    }
  }
  ControllerMetrics(const ControllerMetrics&) = delete;
  ControllerMetrics& operator=(const ControllerMetrics&) = delete;

 private:
  prometheus::Registry& registry_;  // Before the families, which register in it.

  Counters& Count(const std::string& name, const std::string& help) {
    return prometheus::BuildCounter().Name("trainyard_" + name).Help(help).Register(registry_);
  }
  Gauges& Measure(const std::string& name, const std::string& help) {
    return prometheus::BuildGauge().Name("trainyard_" + name).Help(help).Register(registry_);
  }
  std::map<std::string, Gauges*> MeasureStepNumbers() {
    std::map<std::string, Gauges*> gauges;
    const StepNumbers names;
    ForEachNumber(names, [&](const StepNumber& row, auto) {
      gauges[row.metric] = &Measure(row.metric, row.help);
    });
    return gauges;
  }
  Histograms& Spread(const std::string& name, const std::string& help) {
    return prometheus::BuildHistogram().Name("trainyard_" + name).Help(help).Register(registry_);
  }

 public:
  // The service.
  Gauges& build_info = Measure(
      "build_info",
      "1, with labels version, revision, cuda, nccl. Several values at once: a mixed fleet.");
  Gauges& jobs = Measure("jobs",
                         "Jobs by state. Recovering for long: a restart loop; stopping for long: "
                         "ranks that do not die.");
  Counters& jobs_submitted_total = Count(
      "jobs_submitted_total", "Jobs accepted since start. Flat while clients submit: refusals.");
  Counters& jobs_finished_total = Count(
      "jobs_finished_total", "Jobs ended since start, by outcome. Many failed: see their reasons.");
  Histograms& queue_wait_seconds =
      Spread("queue_wait_seconds", "From submission to first placement. High: too few devices.");
  Histograms& scheduling_pass_duration_seconds = Spread(
      "scheduling_pass_duration_seconds",
      "One pass over queue and machines. Near a second: the queue is too long for one pass.");
  Gauges& workers =
      Measure("workers", "Workers by state. Any lost: a machine or its network is down.");
  Gauges& devices =
      Measure("devices",
              "Devices by state and device_model. Many free beside queued jobs: gangs do not fit.");
  Gauges& job_running = Measure(
      "job_running", "1 for each job that runs: all of its ranks are ready. Other jobs have none.");
  Gauges& worker_heartbeat_age_seconds = Measure(
      "worker_heartbeat_age_seconds",
      "Since a worker's last message. Above the lease: it is lost and its ranks count as dead.");
  Counters& reports_refused_total = Count(
      "reports_refused_total",
      "Reports of ranks that were acknowledged and not stored, by kind: of superseded attempts, "
      "of jobs that had ended, or of workers that the job never ran on. Rising without restarts: "
      "two controllers, or a fault.");
  Counters& grpc_server_handled_total =
      prometheus::BuildCounter()
          .Name("grpc_server_handled_total")
          .Help(
              "Calls finished, by code. Codes other than OK rising: "
              "clients or the store in trouble.")
          .Register(registry_);
  Histograms& grpc_server_handling_seconds = prometheus::BuildHistogram()
                                                 .Name("grpc_server_handling_seconds")
                                                 .Help(
                                                     "Time from a call's start to its status. High "
                                                     "for SubmitJob: a slow disk; streams last "
                                                     "as long as they are watched.")
                                                 .Register(registry_);
  Counters& calls_refused_total =
      Count("calls_refused_total",
            "Calls that the gate did not let in, by reason. Rising: callers without a token or a "
            "role, or somebody who tries.");
  Gauges& store_last_backup_timestamp_seconds =
      Measure("store_last_backup_timestamp_seconds",
              "When the newest backup of the store was begun. Older than --backup-every: backups "
              "fail. Absent: none was made since the start.");
  Counters& store_backup_failures_total =
      Count("store_backup_failures_total",
            "Backups of the store that failed. Rising: see backup_failed in the log.");
  Histograms& store_commit_duration_seconds =
      Spread("store_commit_duration_seconds",
             "One transaction of the store, with its sync of the disk. Near a second: calls that "
             "change anything are slow, too.");
  Gauges& certificate_expiry_timestamp_seconds =
      Measure("certificate_expiry_timestamp_seconds",
              "When the certificate expires that proves this controller. Soon: it is not renewed, "
              "and clients will refuse it. Absent: no TLS.");

  // One series for each job. The labels begin with job_id.
  Gauges& job_info = Measure(
      "job_info", "1, with what the job is as labels, to join on. Two at once for a job: a fault.");
  Histograms& step_duration_seconds =
      Spread("step_duration_seconds",
             "Step time of the slowest rank. A rising tail: a straggler or a shared machine.");
  Counters& steps_total =
      Count("steps_total", "Finished steps, repeated ones included. Flat: stalled.");
  Counters& tokens_total = Count("tokens_total", "Tokens trained on, repeated steps included.");
  Gauges& tokens_seen =
      Measure("tokens_seen", "Tokens up to the last step, each once. Falls back with a resume.");
  Counters& samples_total =
      Count("samples_total", "Sequences trained on, repeated steps included.");
  Counters& model_flops_total =
      Count("model_flops_total",
            "FLOPs of the model by convention, no recompute. Its rate over peak_flops is the MFU.");
  Counters& skipped_steps_total =
      Count("skipped_steps_total", "Updates not committed, by reason. Rising: unstable numerics.");
  Gauges& peak_flops = Measure(
      "peak_flops", "Dense peak per second of the job's devices together. Absent: unknown device.");
  Gauges& tokens_per_second_per_device =
      Measure("tokens_per_second_per_device", "In the last step. Falling: as for mfu_ratio.");
  // The numbers of common/step_numbers.h, by StepNumber::metric.
  std::map<std::string, Gauges*> step_numbers = MeasureStepNumbers();
  Counters& phase_seconds_total = Count(
      "phase_seconds_total",
      "Seconds of the slowest rank by phase. Much data: starved; much grad_sync: communication "
      "is not hidden.");
  Counters& collective_seconds_total =
      Count("collective_seconds_total",
            "Seconds in collectives by op and group, of all ranks together, hidden ones included. "
            "High for few bytes: ranks wait for each other.");
  Counters& collective_bytes_total =
      Count("collective_bytes_total",
            "Bytes that all ranks together sent in collectives, by op and group. Over the seconds "
            "far below the link's rate: small messages, or waiting.");
  Histograms& checkpoint_duration_seconds =
      Spread("checkpoint_duration_seconds",
             "A save, until committed. Near the save interval: slow storage.");
  Gauges& checkpoint_size_bytes = Measure("checkpoint_size_bytes", "Of the last checkpoint.");
  Gauges& last_checkpoint_timestamp_seconds = Measure(
      "last_checkpoint_timestamp_seconds", "When the last one was committed. Old: work at risk.");
  Gauges& steps_since_checkpoint =
      Measure("steps_since_checkpoint",
              "Finished steps that a resume would repeat. Above twice the interval: overdue.");
  Gauges& checkpoint_interval_steps =
      Measure("checkpoint_interval_steps",
              "checkpoint.every_steps of its spec. Absent: it saves at its end, or never.");
  Counters& checkpoint_failures_total = Count(
      "checkpoint_failures_total", "Saves that failed. Any: full or failing storage; see events.");
  Gauges& last_step_timestamp_seconds = Measure(
      "last_step_timestamp_seconds", "When the last step finished. Old while running: a hang.");
  Counters& restarts_total =
      Count("restarts_total", "Attempts that ended early, by reason. Rising: a restart loop.");
  Gauges& startup_seconds =
      Measure("startup_seconds",
              "From placement to ready, and to the first step. High: slow data or checkpoint.");
  Gauges& goodput_ratio = Measure(
      "goodput_ratio", "Share of the time since the first placement spent in steps that count.");
  Counters& badput_seconds_total = Count(
      "badput_seconds_total", "Seconds that advanced nothing, by cause. The largest is the lever.");
  Gauges& estimated_seconds_remaining =
      Measure("estimated_seconds_remaining", "At the recent rate. Growing: the job slows down.");
};

}  // namespace trainyard::controller
