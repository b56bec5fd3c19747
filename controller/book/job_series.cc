#include "controller/book/job_series.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace trainyard::controller {
namespace {

// Somewhat more than operations times sets of axes. A limit is needed because workers choose these
// names.
constexpr size_t kMaxCollectives = 256;

// Boundaries from 1 ms to 131 s, each twice the one before.
prometheus::Histogram::BucketBoundaries StepBuckets() {
  prometheus::Histogram::BucketBoundaries bounds;
  for (double bound = 0.001; bound < 200; bound *= 2) bounds.push_back(bound);
  return bounds;
}

constexpr std::array kRestartReasons = {"peer_lost", "device_error", "signal",
                                        "drain",     "worker_lost",  "other"};

// Identifies a series among those of a job.
std::string KeyOf(const std::string& family, const prometheus::Labels& labels) {
  std::string key = family;
  for (const auto& [name, value] : labels) absl::StrAppend(&key, "\n", name, "=", value);
  return key;
}

// The step of the job's newest checkpoint.
uint64_t SavedStep(const Job& job) {
  return job.checkpoints.empty() ? 0 : job.checkpoints.back().step;
}

absl::string_view ReasonLabel(const Job& job) {
  switch (job.culprit) {
    case ExitCause::kPeerLost:
      return "peer_lost";
    case ExitCause::kDeviceError:
      return "device_error";
    case ExitCause::kSignal:
      return "signal";
    case ExitCause::kNone:
      return job.stop_mode == StopMode::kCheckpoint ? "drain" : "worker_lost";
    default:
      return "other";
  }
}

}  // namespace

JobSeries::JobSeries(ControllerMetrics& metrics, const Job& job)
    : metrics_(metrics), job_id_(job.id) {}

JobSeries::~JobSeries() {
  for (const auto& [key, made] : series_) made.remove();
}

template <typename Metric, typename... Args>
Metric& JobSeries::Series(prometheus::Family<Metric>& family, prometheus::Labels labels,
                          const Args&... args) {
  labels.emplace("job_id", job_id_);
  auto [it, fresh] = series_.try_emplace(KeyOf(family.GetName(), labels));
  if (fresh) {
    Metric* metric = &family.Add(labels, args...);
    it->second = {metric, [&family, metric] { family.Remove(metric); }};
  }
  return *static_cast<Metric*>(it->second.metric);
}

void JobSeries::Remove(const ControllerMetrics::Gauges& family) {
  const auto found = series_.find(KeyOf(family.GetName(), {{"job_id", job_id_}}));
  if (found == series_.end()) return;
  found->second.remove();
  series_.erase(found);
}

// The attempt has no last step yet. Until its first step, which may take minutes, the page would
// show the numbers of a step that is to be repeated.
void JobSeries::GoBack(const Job& job) {
  ShowTokens(job);
  if (job.progress.numbers) return;  // The attempt goes on from the step that was shown.
  for (const auto& [metric, family] : metrics_.step_numbers) Remove(*family);
  Remove(metrics_.tokens_per_second_per_device);
}

void JobSeries::ShowTokens(const Job& job) {
  if (const auto tokens = job.TokensSeen()) Series(metrics_.tokens_seen, {}).Set(double(*tokens));
}

void JobSeries::Describe(const Job& job, const DeviceFacts& devices) {
  if (described_ || devices.model.empty()) return;
  described_ = true;
  const JobFacts& f = job.spec->facts;
  prometheus::Labels labels = {{"job_name", f.name},
                               {"model", f.model},
                               {"precision", f.precision},
                               {"data", absl::StrCat(f.ranks / ModelRanks(f))},
                               {"global_batch", absl::StrCat(f.global_batch)},
                               {"micro_batch", absl::StrCat(f.micro_batch)},
                               {"sequence", absl::StrCat(f.sequence)},
                               {"device_model", devices.model},
                               {"flops_convention", "exact"}};
  ForEachAxis(f, [&](const JobAxis& axis, uint32_t size) {
    labels.emplace(axis.name, absl::StrCat(size));
  });
  Series(metrics_.job_info, labels).Set(1);
}

// A counter that is absent before its first event hides this event from rate() and increase().
void JobSeries::BeginCounters() {
  if (begun_) return;
  begun_ = true;
  Series(metrics_.skipped_steps_total, {{"reason", "not_finite"}});
  Series(metrics_.checkpoint_failures_total, {});
  for (const char* reason : kRestartReasons) {
    Series(metrics_.restarts_total, {{"reason", reason}});
  }
}

void JobSeries::ShowWorkAtRisk(const Job& job) {
  const uint64_t interval = job.spec->facts.checkpoint_every_steps;
  if (interval > 0) Series(metrics_.checkpoint_interval_steps, {}).Set(double(interval));
  const uint64_t saved = SavedStep(job);
  const uint64_t done = std::max(job.progress.step, saved);
  Series(metrics_.steps_since_checkpoint, {}).Set(double(done - saved));
}

void JobSeries::OnStep(const Job& job, const JobStep& step, const DeviceFacts& devices,
                       bool repeated, absl::Duration now) {
  ControllerMetrics& m = metrics_;
  Describe(job, devices);
  Series(m.step_duration_seconds, {}, StepBuckets()).Observe(step.seconds);
  Series(m.steps_total, {}).Increment();
  Series(m.tokens_total, {}).Increment(double(step.tokens));
  Series(m.samples_total, {}).Increment(job.spec->facts.global_batch);
  Series(m.model_flops_total, {{"convention", "exact"}}).Increment(step.model_flops);
  for (const auto& [name, phase] : kPhases) {
    Series(m.phase_seconds_total, {{"phase", name}}).Increment(step.phases.*phase);
  }
  Series(m.phase_seconds_total, {{"phase", "host"}}).Increment(step.phases.host(step.seconds));
  if (devices.peak_flops) Series(m.peak_flops, {}).Set(*devices.peak_flops);
  if (step.seconds > 0) {
    Series(m.tokens_per_second_per_device, {})
        .Set(double(step.tokens) / step.seconds / job.spec->facts.ranks);
  }
  ForEachNumber(step, [&](const StepNumber& row, std::optional<double> number) {
    if (number) Series(*m.step_numbers.at(row.metric), {}).Set(*number);
  });
  Series(m.last_step_timestamp_seconds, {})
      .Set(double(absl::ToUnixMicros(step.finish_time)) * 1e-6);
  ShowTokens(job);
  ShowWorkAtRisk(job);
  const uint64_t steps = job.spec->facts.steps;
  const uint64_t left = steps - std::min(steps, job.progress.step);  // A worker may report more.
  Series(m.estimated_seconds_remaining, {}).Set(double(left) * job.progress.seconds_per_step);

  const auto bad = [&](const char* cause, double seconds) {
    Series(m.badput_seconds_total, {{"cause", cause}}).Increment(seconds);
  };
  bad("data", step.phases.data);
  bad("checkpoint", step.phases.checkpoint);
  bad("validation", step.phases.validation);
  repeated ? bad("repeated_steps", step.seconds) : void(productive_seconds_ += step.seconds);
  if (placed_ && !stepped_) {
    Series(m.startup_seconds, {{"phase", "first_step"}}).Set(absl::ToDoubleSeconds(now - *placed_));
  }
  stepped_ = true;
  if (job.start_time && step.finish_time > *job.start_time) {
    Series(m.goodput_ratio, {})
        .Set(productive_seconds_ / absl::ToDoubleSeconds(step.finish_time - *job.start_time));
  }
}

void JobSeries::OnValidation(double loss) {
  Series(*metrics_.step_numbers.at("validation_loss"), {}).Set(loss);
}

void JobSeries::OnSkipped() {
  Series(metrics_.skipped_steps_total, {{"reason", "not_finite"}}).Increment();
}

void JobSeries::OnCollectives(const std::vector<CollectiveUse>& uses) {
  for (const CollectiveUse& use : uses) {
    std::pair<std::string, std::string> named(use.op, use.group);
    if (collectives_.size() >= kMaxCollectives && !collectives_.contains(named)) continue;
    collectives_.insert(std::move(named));
    const prometheus::Labels labels = {{"op", use.op}, {"group", use.group}};
    Series(metrics_.collective_seconds_total, labels).Increment(use.seconds);
    Series(metrics_.collective_bytes_total, labels).Increment(double(use.bytes));
  }
}

void JobSeries::OnCheckpoint(const Checkpoint& checkpoint, absl::Duration duration) {
  Series(metrics_.checkpoint_duration_seconds, {{"phase", "save"}}, StepBuckets())
      .Observe(absl::ToDoubleSeconds(duration));
  Series(metrics_.checkpoint_size_bytes, {}).Set(double(checkpoint.size_bytes));
  Series(metrics_.last_checkpoint_timestamp_seconds, {})
      .Set(double(absl::ToUnixMicros(checkpoint.create_time)) * 1e-6);
}

void JobSeries::OnFailedCheckpoint() { Series(metrics_.checkpoint_failures_total, {}).Increment(); }

void JobSeries::OnChange(const Job& before, const Job& after, absl::Duration now) {
  if (after.epoch == 0) return;  // Thousands may be queued and cancelled.
  if (SavedStep(before) != SavedStep(after)) ShowWorkAtRisk(after);
  if (before.resumed_step != after.resumed_step || before.progress.step > after.progress.step) {
    GoBack(after);
  }
  if (before.state == after.state && before.epoch == after.epoch) return;
  BeginCounters();
  if (after.state == JobState::kStarting) {
    if (recovering_) {
      Series(metrics_.badput_seconds_total, {{"cause", "recovery"}})
          .Increment(absl::ToDoubleSeconds(now - *recovering_));
    }
    recovering_.reset();
    placed_ = now;
    stepped_ = false;
  } else if (after.state == JobState::kRunning && placed_) {
    const double seconds = absl::ToDoubleSeconds(now - *placed_);
    Series(metrics_.startup_seconds, {{"phase", "ready"}}).Set(seconds);
    Series(metrics_.badput_seconds_total, {{"cause", "startup"}}).Increment(seconds);
  } else if (after.state == JobState::kRecovering) {
    recovering_ = now;
    Series(metrics_.restarts_total, {{"reason", std::string(ReasonLabel(after))}}).Increment();
  }
}

}  // namespace trainyard::controller
