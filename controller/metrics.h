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
  Gauges& build_info = Measure("build_info",
                               "Always 1, with labels version, revision, cuda, nccl. Several "
                               "values at once: a mixed fleet.");
  Gauges& jobs = Measure("jobs",
                         "Jobs by state. Many recovering for long: restart loops. Many stopping "
                         "for long: ranks do not end.");
  Counters& jobs_submitted_total = Count(
      "jobs_submitted_total", "Jobs accepted since start. Flat while clients submit: refusals.");
  Counters& jobs_finished_total = Count(
      "jobs_finished_total", "Jobs ended since start, by outcome. Many failed: see their reasons.");
  Histograms& queue_wait_seconds = Spread(
      "queue_wait_seconds", "Time from submission to first placement. High: too few devices.");
  Histograms& scheduling_pass_duration_seconds =
      Spread("scheduling_pass_duration_seconds",
             "Time of one pass over queue and machines. Near a second: the queue is too long for "
             "one pass.");
  Gauges& workers =
      Measure("workers", "Workers by state. Any lost: a machine or its network is down.");
  Gauges& devices =
      Measure("devices",
              "Devices by state and device_model. Many free beside queued jobs: gangs do not fit.");
  Gauges& job_running = Measure(
      "job_running", "1 for each job whose ranks are all ready. Other jobs have no series.");
  Gauges& worker_heartbeat_age_seconds =
      Measure("worker_heartbeat_age_seconds",
              "Time since a worker's last message. Above the lease: the worker is lost and its "
              "ranks count as dead.");
  Counters& reports_refused_total =
      Count("reports_refused_total",
            "Reports that were acknowledged and not stored, by kind. They came from superseded "
            "attempts, from jobs that had ended, or from workers that the job never ran on. Rising "
            "without restarts: two controllers, or a fault.");
  Counters& grpc_server_handled_total = prometheus::BuildCounter()
                                            .Name("grpc_server_handled_total")
                                            .Help(
                                                "Calls finished, by code. Codes other than OK "
                                                "rising: clients or the store are in trouble.")
                                            .Register(registry_);
  Histograms& grpc_server_handling_seconds =
      prometheus::BuildHistogram()
          .Name("grpc_server_handling_seconds")
          .Help(
              "Time from a call's start to its status. High for SubmitJob: a slow disk. Streams "
              "last as long as they are watched.")
          .Register(registry_);
  Counters& calls_refused_total = Count("calls_refused_total",
                                        "Calls that were refused at the gate, by reason. Rising: "
                                        "callers without a token or a role, or an attack.");
  Gauges& store_last_backup_timestamp_seconds =
      Measure("store_last_backup_timestamp_seconds",
              "When the newest backup of the store was begun. Older than --backup-every: backups "
              "fail. Absent: none was made since the start.");
  Counters& store_backup_failures_total =
      Count("store_backup_failures_total",
            "Backups of the store that failed. Rising: see backup_failed in the log.");
  Histograms& store_commit_duration_seconds =
      Spread("store_commit_duration_seconds",
             "Time of one transaction of the store, including its sync of the disk. Near a second: "
             "calls that change anything are slow, too.");
  Gauges& certificate_expiry_timestamp_seconds =
      Measure("certificate_expiry_timestamp_seconds",
              "When this controller's certificate expires. Soon: it is not renewed, and clients "
              "will refuse it. Absent: no TLS.");

  // One series for each job. The labels begin with job_id.
  Gauges& job_info = Measure(
      "job_info",
      "Always 1, with the job's properties as labels, to join on. Two at once for a job: a fault.");
  Histograms& step_duration_seconds =
      Spread("step_duration_seconds",
             "Step time of the slowest rank. A rising tail: a straggler or a shared machine.");
  Counters& steps_total =
      Count("steps_total", "Finished steps, including repeated ones. Flat: the job is stalled.");
  Counters& tokens_total =
      Count("tokens_total", "Tokens trained on, including those of repeated steps.");
  Gauges& tokens_seen = Measure(
      "tokens_seen",
      "Tokens up to the last step, each counted once, including those of the jobs that this one "
      "continues. Falls when a job resumes. Absent: those jobs are not known.");
  Counters& samples_total =
      Count("samples_total", "Sequences trained on, including those of repeated steps.");
  Counters& model_flops_total = Count("model_flops_total",
                                      "FLOPs of the model by convention, without recompute. The "
                                      "rate divided by peak_flops is the MFU.");
  Counters& skipped_steps_total =
      Count("skipped_steps_total", "Updates not committed, by reason. Rising: unstable numerics.");
  Gauges& peak_flops = Measure(
      "peak_flops", "Dense peak per second of the job's devices together. Absent: unknown device.");
  Gauges& tokens_per_second_per_device =
      Measure("tokens_per_second_per_device",
              "Tokens per second and device in the last step. Falling: as for mfu_ratio.");
  // The numbers of common/step_numbers.h, by StepNumber::metric.
  std::map<std::string, Gauges*> step_numbers = MeasureStepNumbers();
  Counters& phase_seconds_total =
      Count("phase_seconds_total",
            "Seconds of the slowest rank by phase. Much data: ranks wait for batches. Much "
            "grad_sync: communication is not hidden. Much host: devices wait between steps. Much "
            "validation: validate less often, or fewer batches.");
  Counters& collective_seconds_total =
      Count("collective_seconds_total",
            "Seconds in collectives by op and group, all ranks together, including hidden time. "
            "High for few bytes: ranks wait for each other.");
  Counters& collective_bytes_total =
      Count("collective_bytes_total",
            "Bytes that all ranks together sent in collectives, by op and group. Far fewer per "
            "second than the link allows: small messages, or waiting.");
  Histograms& checkpoint_duration_seconds =
      Spread("checkpoint_duration_seconds",
             "Time of a save until it is committed. Near the save interval: slow storage.");
  Gauges& checkpoint_size_bytes = Measure("checkpoint_size_bytes", "Size of the last checkpoint.");
  Gauges& last_checkpoint_timestamp_seconds =
      Measure("last_checkpoint_timestamp_seconds",
              "When the last checkpoint was committed. Old: work is at risk.");
  Gauges& steps_since_checkpoint = Measure("steps_since_checkpoint",
                                           "Finished steps that a resume would repeat. Above twice "
                                           "the interval: a checkpoint is overdue.");
  Gauges& checkpoint_interval_steps =
      Measure("checkpoint_interval_steps",
              "The spec's checkpoint.every_steps. Absent: the job saves at its end, or never.");
  Counters& checkpoint_failures_total = Count(
      "checkpoint_failures_total", "Saves that failed. Any: full or failing storage; see events.");
  Gauges& last_step_timestamp_seconds =
      Measure("last_step_timestamp_seconds",
              "When the last step finished. Old while the job runs: a hang.");
  Counters& restarts_total =
      Count("restarts_total", "Attempts that ended early, by reason. Rising: a restart loop.");
  Gauges& startup_seconds = Measure(
      "startup_seconds",
      "Time from placement to ready, and to the first step. High: slow data or a slow checkpoint.");
  Gauges& goodput_ratio =
      Measure("goodput_ratio",
              "Share of the time since the first placement that was spent in steps that count.");
  Counters& badput_seconds_total =
      Count("badput_seconds_total",
            "Seconds without progress, by cause. Work on the largest cause first.");
  Gauges& estimated_seconds_remaining =
      Measure("estimated_seconds_remaining",
              "Time until the job's end, at the recent rate. Growing: the job slows down.");
};

}  // namespace trainyard::controller
