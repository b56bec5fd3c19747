// The part of JobBook that keeps a running job's reports: steps, progress, logs and series.

#include <algorithm>

#include "common/check.h"
#include "common/status_macros.h"
#include "controller/book/job_book.h"

namespace trainyard::controller {
namespace {

// The weight of the newest step in the smoothed seconds of a step.
constexpr double kNewest = 0.1;

double Smooth(double old_value, double new_value) {
  return old_value > 0 ? old_value + kNewest * (new_value - old_value) : new_value;
}

Progress After(const Progress& before, const JobStep& step) {
  Progress p = before;
  NoteStep(step, p);
  if (step.validation_loss) p.validation_loss = step.validation_loss;
  const double seconds = step.phases.with_pauses(step.seconds);
  if (seconds > 0) p.seconds_per_step = Smooth(p.seconds_per_step, seconds);
  return p;
}

}  // namespace

absl::Status JobBook::CheckFenceOf(const Job& job, const StepReport& report) {
  if (report.read_by_epoch > 0) {
    RETURN_IF_ERROR(CheckFence(job, report.read_by_epoch, 0, report.worker_id));
  }
  const bool read = report.read_by_epoch > 0;
  return CheckStepFence(job, report.record.epoch.value_or(0), report.record.step,
                        read ? 0 : report.rank, report.worker_id);
}

void JobBook::Refused(const char* report) {
  metrics_.reports_refused_total.Add({{"report", report}}).Increment();
}

void JobBook::RecordStep(const StepReport& report, const std::string& device_model, Done durable) {
  MutexLock lock(mutex_);
  const auto found = slots_.find(report.job_id);
  Slot* const slot = found == slots_.end() ? nullptr : &found->second;
  const auto is_of_job = [&](const Ended& each) { return each.job->id == report.job_id; };
  const auto ended =
      slot != nullptr ? ended_.end() : std::find_if(ended_.begin(), ended_.end(), is_of_job);
  const Snapshot job = slot != nullptr         ? slot->applied
                       : ended != ended_.end() ? ended->job
                                               : nullptr;
  if (job == nullptr || !CheckFenceOf(*job, report).ok()) {
    Refused("step");
    lock.Unlock();
    return Barrier(std::move(durable));
  }
  StepWindow& steps = slot != nullptr ? slot->steps : ended->steps;
  const uint32_t ranks = job->spec->facts.ranks;
  std::optional<JobStep> step = report.read_by_epoch > 0
                                    ? steps.MergeWhole(report.record, ranks)
                                    : steps.Merge(report.record, report.rank, ranks);
  if (!step) {
    lock.Unlock();
    return Barrier(std::move(durable));
  }
  // Reports of an earlier attempt, or of a job that has ended, fill the history. Only those of the
  // current attempt change the job's progress.
  const bool current =
      slot != nullptr && !IsTerminal(job->state) && report.record.epoch == job->epoch;
  if (current) SeriesOf(*slot).OnCollectives(report.record.collectives);
  if (current && report.rank == 0 && report.record.skipped) SeriesOf(*slot).OnSkipped();
  const bool complete = step->complete;
  if (complete && current) {
    StepFinished(*slot, *step, {device_model, report.record.peak_flops});
    PublishProgress(*slot);
  }
  const bool validated_earlier = complete && !current && step->validation_loss;
  WriteBatch batch;
  batch.steps.push_back({job->number, *std::move(step)});
  const Refusal refuse = store_.Write(std::move(batch), OnFailure::kRetry,
                                      [this, complete, validated_earlier, id = report.job_id,
                                       durable = std::move(durable)](const absl::Status& status) {
                                        if (durable) durable(status);
                                        if (!status.ok()) return;
                                        if (validated_earlier) ValidatedEarlier(id);
                                        if (complete) NotifyJob(id);
                                      });
  lock.Unlock();
  if (refuse) refuse();
}

void JobBook::StepFinished(Slot& slot, const JobStep& step, const DeviceFacts& devices) {
  if (step.skipped) return;
  const bool repeated = step.step <= slot.applied->progress.furthest_step;
  Job job = *slot.applied;
  job.progress = After(job.progress, step);
  job.progress.peak_flops = devices.peak_flops.value_or(0);
  if (step.validation_loss) slot.validated_step = step.step;
  slot.applied = std::make_shared<const Job>(std::move(job));
  slot.progress_waits = true;
  SeriesOf(slot).OnStep(*slot.applied, step, devices, repeated, time_.Monotonic());
}

absl::StatusOr<JobStep> JobBook::LastValidated(const Job& job) const {
  const uint64_t resumed = job.resumes.empty() ? 0 : job.resumes.back().step;
  return store_.LastValidated(job.number, std::max(resumed, job.progress.step), job.resumes);
}

void JobBook::ValidatedEarlier(const std::string& job_id) {
  MutexLock lock(mutex_);
  const auto found = slots_.find(job_id);
  if (found != slots_.end()) found->second.look_for_validation = true;
}

void JobBook::LookForValidations() {
  std::vector<Snapshot> wanting;
  {
    MutexLock lock(mutex_);
    for (auto& [id, slot] : slots_) {
      // Once the resume is durable, so are the steps that were reported before it.
      if (!slot.look_for_validation || slot.writes_in_flight > 0) continue;
      slot.look_for_validation = false;
      wanting.push_back(slot.applied);
    }
  }
  for (const Snapshot& wants : wanting) {
    const absl::StatusOr<JobStep> validated = LastValidated(*wants);
    if (absl::IsNotFound(validated.status())) continue;
    MutexLock lock(mutex_);
    const auto found = slots_.find(wants->id);
    if (found == slots_.end() || found->second.look_for_validation) continue;
    Slot& slot = found->second;
    // Another attempt may have begun meanwhile, and the store may not answer for a moment.
    if (!validated.ok() ||
        SupersededBy(slot.applied->resumes, *validated->epoch, validated->step) != nullptr) {
      slot.look_for_validation = true;
      continue;
    }
    if (validated->step <= slot.validated_step) continue;
    Job job = *slot.applied;
    job.progress.validation_loss = validated->validation_loss;
    slot.validated_step = validated->step;
    slot.applied = std::make_shared<const Job>(std::move(job));
    slot.progress_waits = true;
    SeriesOf(slot).OnValidation(*validated->validation_loss);
  }
}

bool JobBook::PublishProgress(Slot& slot) {
  const absl::Duration now = time_.Monotonic();
  const bool last = slot.applied->progress.step >= slot.applied->spec->facts.steps;
  if (!slot.progress_waits || slot.writes_in_flight > 0) return false;
  if (!last && now - slot.last_progress < limits_.progress_every) return false;
  Job job = *slot.applied;
  ++job.revision;
  slot.applied = slot.published = std::make_shared<const Job>(std::move(job));
  slot.progress_waits = false;
  slot.last_progress = now;
  return true;
}

absl::Duration JobBook::Waited(const Slot& slot, const Job& job, absl::Time placed) const {
  if (slot.queued_at) return time_.Monotonic() - *slot.queued_at;
  return std::max(placed - job.create_time, absl::ZeroDuration());
}

void JobBook::LetGo(std::unique_ptr<JobSeries> series) {
  if (series == nullptr || series->empty()) return;
  old_series_.push_back({time_.Monotonic() + limits_.series_linger, std::move(series)});
  if (old_series_.size() > limits_.old_series) old_series_.pop_front();
}

JobSeries& JobBook::SeriesOf(Slot& slot) {
  if (slot.series == nullptr) slot.series = std::make_unique<JobSeries>(metrics_, *slot.applied);
  return *slot.series;
}

uint64_t JobBook::HistoryUpTo(const std::string& job_id) const {
  MutexLock lock(mutex_);
  const auto found = slots_.find(job_id);
  return found == slots_.end() ? 0 : found->second.steps.complete_up_to();
}

void JobBook::RecordFailedCheckpoint(const std::string& job_id) {
  MutexLock lock(mutex_);
  const auto found = slots_.find(job_id);
  if (found != slots_.end()) SeriesOf(found->second).OnFailedCheckpoint();
}

void JobBook::RecordCheckpointDuration(const std::string& job_id, const Checkpoint& checkpoint,
                                       absl::Duration duration) {
  MutexLock lock(mutex_);
  const auto found = slots_.find(job_id);
  if (found != slots_.end()) SeriesOf(found->second).OnCheckpoint(checkpoint, duration);
}

void JobBook::AppendLogs(const std::string& job_id, const std::string& worker_id,
                         const std::vector<LogRecord>& lines) {
  MutexLock lock(mutex_);
  const auto found = slots_.find(job_id);
  if (found == slots_.end()) return;
  if (!found->second.applied->WasOn(worker_id)) return Refused("log");
  WriteBatch batch;
  for (const LogRecord& line : lines) {
    batch.logs.push_back({found->second.applied->number, line});
  }
  const Refusal refuse =
      store_.Write(std::move(batch), OnFailure::kDrop, [this, job_id](const absl::Status& status) {
        if (status.ok()) NotifyJob(job_id);
      });
  lock.Unlock();
  if (refuse) refuse();
}

void JobBook::Tick() {
  (void)time_.Now();  // A leap counts from when it happens, not from the next submit.
  LookForValidations();
  std::vector<std::weak_ptr<JobListener>> listeners;
  std::vector<OldSeries> old;
  {
    MutexLock lock(mutex_);
    for (auto& [id, slot] : slots_) {
      if (PublishProgress(slot)) {
        listeners.insert(listeners.end(), slot.listeners.begin(), slot.listeners.end());
      }
    }
    while (!old_series_.empty() && old_series_.front().remove_at <= time_.Monotonic()) {
      old.push_back(std::move(old_series_.front()));
      old_series_.pop_front();
    }
  }
  Notify(listeners);
}

}  // namespace trainyard::controller
