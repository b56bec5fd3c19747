#include "controller/book/job_book.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/violations.h"
#include "controller/jobs/job_codec.h"
#include "controller/jobs/job_id.h"

namespace trainyard::controller {
namespace {

// Ended jobs of which steps may still come. Each has at most the open steps of a StepWindow.
constexpr size_t kMostEnded = 64;

absl::Status NoJob(const std::string& job_id) {
  return absl::NotFoundError(absl::StrCat("no job '", job_id, "'"));
}

StoredJob Row(const Job& job) {
  StoredJob row;
  row.number = job.number;
  row.state = job.state;
  row.body = EncodeJob(job);
  return row;
}

absl::Status Damaged(const std::string& job_id) {
  return absl::DataLossError(absl::StrCat(
      "the store's record of job ", job_id,
      " is damaged, and the job's ranks are left running: to go back to a backup, stop "
      "the controller, run it once with --restore BACKUP, and start it again"));
}

absl::Status NotLive(const std::string& job_id) {
  return absl::NotFoundError(absl::StrCat("job ", job_id, " is not known, or has ended"));
}

// Returns the violation for a path that must not lie where a live job has its checkpoints. A job of
// another namespace is not named.
FieldViolation TakenBy(const Directories::Use& use, const SpecPath& named, const Spec& spec) {
  const bool own = use.name_space == spec.facts.name_space;
  const std::string where =
      !own || use.directory == named.path ? "" : absl::StrCat(" as '", use.directory, "'");
  return {.field = named.field,
          .wanted = "a directory apart from those of other jobs",
          .found = absl::StrCat("'", named.path, "', which ",
                                own ? "job " + use.job_id : "a job of another namespace",
                                " is using in whole or in part", where),
          .note = absl::StrCat("give another directory", own ? ", or cancel that job first" : "")};
}

// Returns the step up to which the reports before this event count. `after` contains resumes that
// `before` did not. From the first of their steps on, earlier reports do not count.
uint64_t KnownUpTo(const Job& before, const Job& after) {
  const uint64_t known = before.resumes.empty() ? 0 : before.resumes.back().epoch;
  const auto first = std::find_if(after.resumes.begin(), after.resumes.end(),
                                  [&](const Resume& resume) { return resume.epoch > known; });
  return first == after.resumes.end() ? after.resumes.back().step : first->step;
}

void LogChange(const Job& before, const Job& after) {
  if (before.state == after.state) return;
  LogInfo("job_state", {{"job", after.id},
                        {"state", Name(after.state)},
                        {"epoch", after.epoch},
                        {"reason", after.state_reason}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobBook>> JobBook::Create(const BelievedTime& time, Store& store,
                                                         ControllerMetrics& metrics,
                                                         const JobBookLimits& limits) {
  std::unique_ptr<JobBook> book(new JobBook(time, store, metrics, limits));
  RETURN_IF_ERROR(book->Load());
  return book;
}

absl::Status JobBook::Load() {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(last_number_, store_.NewestJob());
  ASSIGN_OR_RETURN(const std::vector<StoredJob> rows, store_.LiveJobs());
  for (const StoredJob& row : rows) {
    const absl::Status status = row.damaged ? Damaged(JobId(row.number)) : LoadJob(row);
    if (status.ok()) continue;
    damaged_.insert(row.number);
    LogError("job_damaged",
             {{"job", JobId(row.number)},
              {"error", status.message()},
              {"meaning", "its ranks are left running, and its record is not changed"}});
  }
  return absl::OkStatus();
}

absl::Status JobBook::LoadJob(const StoredJob& stored) {
  ASSIGN_OR_RETURN(const Snapshot snapshot, FromStore(stored));
  Job job = *snapshot;
  // Progress is not written with every step, so it is taken from the attempt's last step. Before
  // the attempt's first step, the progress from its placement is right; steps of earlier attempts
  // may lie beyond the step where it resumed. Revisions that were published but not written are
  // smaller than those of this generation.
  if (const auto last = store_.LastStep(job.number, job.epoch); last.ok()) {
    NoteStep(*last, job.progress);
  }
  const absl::StatusOr<JobStep> validated = LastValidated(job);
  job.progress.validation_loss = validated.ok() ? validated->validation_loss : std::nullopt;
  // The release that stored the job may not have known the batches.
  const bool asks = !job.claimed || job.earlier_batches.empty();
  const Snapshot continued = asks ? StoredContinued(job.spec->facts) : nullptr;
  if (continued != nullptr && job.earlier_batches.empty()) {
    job.earlier_batches = continued->Batches();
  }
  job.revision = std::max(job.revision + 1, store_.generation() << 32);
  Slot& slot = slots_[job.id];
  slot.applied = slot.published = std::make_shared<const Job>(job);
  if (validated.ok()) slot.validated_step = validated->step;
  if (!job.claimed) slot.continued = continued;
  if (job.epoch > 0) {
    const auto open = store_.OpenSteps(job.number, job.resumes);
    const uint64_t told = job.resumes.empty() ? 0 : job.resumes.back().epoch;
    if (open.ok()) slot.steps = StepWindow(*open, told);
    slot.steps.SkipTo(job.ContinuedFrom().value_or(0));
    if (!open.ok()) {
      LogError("steps_damaged", {{"job", job.id}, {"error", open.status().message()}});
    }
    SeriesOf(slot).AddEarlierSeconds(store_.SumStepSeconds(job.number).value_or(0));
  }
  TakePlace(job);
  return absl::OkStatus();
}

Snapshot JobBook::StoredContinued(const JobFacts& facts) const {
  const std::optional<uint64_t> number = JobNumber(facts.continues);
  if (!number) return nullptr;
  const absl::StatusOr<StoredJob> row = store_.GetJob(*number);
  if (!row.ok()) return nullptr;
  const absl::StatusOr<Snapshot> job = FromStore(*row);
  return job.ok() && (*job)->spec->facts.name_space == facts.name_space ? *job : nullptr;
}

absl::StatusOr<Snapshot> JobBook::FromStore(const StoredJob& stored) const {
  ASSIGN_OR_RETURN(Job job, DecodeJob(stored.body));
  ASSIGN_OR_RETURN(JobFacts facts, DecodeFacts(stored.facts));
  job.number = stored.number;
  job.id = JobId(stored.number);
  job.spec = std::make_shared<const Spec>(Spec{stored.spec, stored.config, std::move(facts)});
  return std::make_shared<const Job>(std::move(job));
}

absl::StatusOr<RootPaths> JobBook::Admit(const Spec& spec) const {
  return admission_ ? admission_(spec) : RootPaths();
}

absl::Status JobBook::CheckSubmit(const Spec& spec) const {
  ASSIGN_OR_RETURN(const RootPaths roots, Admit(spec));
  RETURN_IF_ERROR(FindContinued(spec, roots).status());
  MutexLock lock(mutex_);
  return CheckSubmitLocked(spec, roots);
}

std::string JobBook::HasTakenOver(const Snapshot& job, const Spec& spec,
                                  const RootPaths& roots) const {
  Directories of_run;
  Snapshot owner = job;
  for (;;) {
    of_run.Add(owner->spec->facts, owner->id);
    if (owner->continued_by.empty()) break;
    const absl::StatusOr<Snapshot> next = Get(owner->continued_by);
    if (!next.ok()) return owner->continued_by;
    owner = *next;
  }
  const JobFacts& facts = spec.facts;
  const bool taken =
      owner != job && of_run.Overlapping(facts.checkpoint_directory, facts.roots, roots);
  return taken ? owner->id : "";
}

absl::StatusOr<Snapshot> JobBook::FindContinued(const Spec& spec, const RootPaths& roots) const {
  const std::string& id = spec.facts.continues;
  if (id.empty()) return Snapshot();
  absl::StatusOr<Snapshot> job = Get(id);
  // A trainer alone ran it, or another controller did. The rank asks the directory.
  if (absl::IsNotFound(job.status())) return Snapshot();
  RETURN_IF_ERROR(job.status());
  Violations violations;
  if ((*job)->spec->facts.name_space != spec.facts.name_space) {
    violations.Add({.field = "continues.job", .note = std::string(NoJob(id).message())});
  } else if (!IsTerminal((*job)->state)) {
    violations.Add({.field = "continues.job",
                    .wanted = "a job that has ended",
                    .found = absl::StrCat(id, ", which is ", Name((*job)->state)),
                    .note = "cancel that job first"});
  } else if (const std::string owner = HasTakenOver(*job, spec, roots); !owner.empty()) {
    violations.Add({.field = "continues.job",
                    .wanted = absl::StrCat(owner, ", the job that has the run now"),
                    .found = id,
                    .note = absl::StrCat("to go on with it: trainyard submit --continue ", owner)});
  }
  RETURN_IF_ERROR(violations.ToStatus());
  return job;
}

absl::Status JobBook::CheckSubmitLocked(const Spec& spec, const RootPaths& roots) const {
  const std::string& checkpoints = spec.facts.checkpoint_directory;
  Violations violations;
  if (const auto use = directories_.Overlapping(checkpoints, spec.facts.roots, roots)) {
    violations.Add(TakenBy(*use, {"checkpoint.directory", checkpoints}, spec));
  }
  Directories own;
  own.Add(spec.facts, "");
  for (const SpecPath& named : spec.facts.paths) {
    if (named.field != "profile.directory") continue;
    if (const auto use = directories_.Holding(named.path, spec.facts.roots, roots)) {
      violations.Add(TakenBy(*use, named, spec));
    } else if (own.Holding(named.path, spec.facts.roots, roots)) {
      violations.Add(named.field,
                     absl::StrCat("a directory outside checkpoint.directory '", checkpoints, "'"),
                     absl::StrCat("'", named.path, "'"));
    }
  }
  RETURN_IF_ERROR(violations.ToStatus());
  const auto places = places_.find(spec.facts.name_space);
  const size_t taken = places == places_.end() ? 0 : places->second;
  if (slots_.size() + submitting_ + taken >= limits_.live_jobs) {
    return absl::ResourceExhaustedError(absl::StrCat("the queue is full for the namespace ",
                                                     spec.facts.name_space, ", which has ", taken,
                                                     " jobs that have not ended: try again later"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Snapshot> JobBook::Earlier(const std::string& request_id, const Spec& spec) const {
  if (request_id.empty()) return Snapshot();
  const absl::StatusOr<uint64_t> number = store_.FindRequest(request_id);
  if (absl::IsNotFound(number.status())) return Snapshot();
  RETURN_IF_ERROR(number.status());
  ASSIGN_OR_RETURN(Snapshot job, Get(JobId(*number)));
  if (job->spec->bytes != spec.bytes) {
    return absl::AlreadyExistsError(absl::StrCat("request_id ", request_id, " was used for job ",
                                                 job->id, " with another spec"));
  }
  return job;
}

Job JobBook::NewJob(std::shared_ptr<const Spec> spec, const Snapshot& continued) {
  Job job;
  // Attempts in one directory have numbers that grow.
  job.epoch_floor = std::max(spec->facts.continues_epoch, continued ? continued->epoch : 0);
  if (continued != nullptr) job.earlier_batches = continued->Batches();
  job.create_time = time_.Now();
  job.number = last_number_ = NextJobNumber(last_number_, job.create_time);
  job.id = JobId(job.number);
  job.spec = std::move(spec);
  job.revision = (store_.generation() << 32) + 1;
  return job;
}

void JobBook::TakePlace(const Job& job) {
  ++places_[job.spec->facts.name_space];
  directories_.Add(job.spec->facts, job.id);
}

void JobBook::LeavePlace(const Job& job) {
  const auto places = places_.find(job.spec->facts.name_space);
  if (--places->second == 0) places_.erase(places);
  directories_.Remove(job.spec->facts, job.id);
}

void JobBook::Submit(const std::string& request_id, std::shared_ptr<const Spec> spec,
                     SubmitDone done, std::optional<AuditEntry> audit) {
  const auto submission = std::make_shared<Submission>(
      Submission{request_id, std::move(spec), {std::move(done)}, std::move(audit)});
  if (!request_id.empty()) {
    // From here until its outcome is known, the submission is in submissions_. So no other call
    // with this request_id reads the store, which is read without the lock.
    MutexLock lock(mutex_);
    const auto [same, first] = submissions_.try_emplace(request_id, submission);
    if (!first && same->second->spec->bytes == submission->spec->bytes) {
      return same->second->waiting.push_back(std::move(submission->waiting.front()));
    }
    if (!first) {
      lock.Unlock();
      return submission->waiting.front()(absl::AlreadyExistsError(
          absl::StrCat("request_id ", request_id, " is being used with another spec")));
    }
  }
  const absl::StatusOr<Snapshot> earlier = Earlier(request_id, *submission->spec);
  if (!earlier.ok() || *earlier != nullptr) return Answer(submission, earlier);
  const absl::StatusOr<Refusal> refuse = WriteNew(submission);
  if (!refuse.ok()) return Answer(submission, refuse.status());
  if (*refuse) (*refuse)();
}

absl::StatusOr<Refusal> JobBook::WriteNew(const std::shared_ptr<Submission>& submission) {
  const Spec& spec = *submission->spec;
  ASSIGN_OR_RETURN(const RootPaths roots, Admit(spec));
  ASSIGN_OR_RETURN(const Snapshot continued, FindContinued(spec, roots));
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckSubmitLocked(spec, roots));
  const Job job = NewJob(submission->spec, continued);
  submission->continued = continued;
  ++submitting_;
  TakePlace(job);
  WriteBatch batch;
  StoredJob row = Row(job);
  row.spec = spec.bytes;
  row.config = spec.config;
  row.facts = EncodeFacts(spec.facts);
  batch.new_jobs.push_back(std::move(row));
  if (!submission->request_id.empty()) {
    batch.new_requests.push_back({submission->request_id, job.number});
  }
  std::string what = "queued";
  if (!spec.facts.continues.empty()) {
    absl::StrAppend(&what, "; goes on with the run of job ", spec.facts.continues);
  }
  batch.events.push_back({job.number, {job.create_time, EventType::kSubmitted, 0, what}});
  if (submission->audit) {
    batch.audit.push_back(*submission->audit);
    batch.audit.back().target = job.id;
  }
  return store_.Write(
      std::move(batch), OnFailure::kReport,
      [this, submission, job](const absl::Status& status) { Written(submission, job, status); });
}

void JobBook::Written(const std::shared_ptr<Submission>& submission, const Job& job,
                      const absl::Status& status) {
  const Snapshot snapshot = std::make_shared<const Job>(job);
  {
    MutexLock lock(mutex_);
    --submitting_;
    if (status.ok()) {
      Slot& slot = slots_[job.id];
      slot.queued_at = time_.Monotonic();
      slot.applied = slot.published = snapshot;
      slot.continued = submission->continued;
    } else {
      LeavePlace(job);
    }
  }
  if (!status.ok()) return Answer(submission, status);
  metrics_.jobs_submitted_total.Add({}).Increment();
  LogInfo("job_submitted",
          {{"job", job.id}, {"name", job.spec->facts.name}, {"ranks", job.spec->facts.ranks}});
  Answer(submission, snapshot);
  if (hook_) hook_(snapshot);
}

void JobBook::Answer(const std::shared_ptr<Submission>& submission,
                     const absl::StatusOr<Snapshot>& answer) {
  std::vector<SubmitDone> waiting;
  {
    MutexLock lock(mutex_);
    submissions_.erase(submission->request_id);
    waiting.swap(submission->waiting);
  }
  for (const SubmitDone& done : waiting) done(answer);
}

void JobBook::Barrier(Done durable) {
  if (!durable) return;
  if (const Refusal refuse = store_.Write({}, OnFailure::kRetry, std::move(durable))) refuse();
}

absl::StatusOr<Snapshot> JobBook::Apply(const std::string& job_id, const JobEvent& event,
                                        Done durable) {
  MutexLock lock(mutex_);
  const auto found = slots_.find(job_id);
  const absl::StatusOr<Job> next =
      found == slots_.end() ? NotLive(job_id) : controller::Apply(*found->second.applied, event);
  if (!next.ok()) {
    const bool report = durable && !std::holds_alternative<CancelRequested>(event.what);
    if (report && !absl::IsAlreadyExists(next.status())) Refused("event");
    lock.Unlock();
    Barrier(std::move(durable));
    return next.status();
  }
  Slot& slot = found->second;
  const Snapshot before = slot.applied;
  Job job = *next;
  ++job.revision;
  const Snapshot after = slot.applied = std::make_shared<const Job>(std::move(job));
  if (const auto* report = std::get_if<RankReported>(&event.what); report && report->resumed) {
    slot.steps.Resume(after->epoch, KnownUpTo(*before, *after), after->resumes.back().step);
    slot.steps.SkipTo(after->ContinuedFrom().value_or(0));
    if (slot.validated_step > 0 && !after->progress.validation_loss) {
      slot.validated_step = 0;
      slot.look_for_validation = true;
    }
  }
  ++slot.writes_in_flight;
  SeriesOf(slot).OnChange(*before, *after, time_.Monotonic());
  if (before->epoch == 0 && after->epoch > 0) {
    metrics_.queue_wait_seconds
        .Add({},
             prometheus::Histogram::BucketBoundaries{0.1, 1, 10, 60, 600, 3600, 6 * 3600, 86400})
        .Observe(absl::ToDoubleSeconds(Waited(slot, *after, event.time)));
  }
  WriteBatch batch;
  batch.changed_jobs.push_back(Row(*after));
  if (slot.continued != nullptr && after->claimed) {
    Job earlier = *std::exchange(slot.continued, nullptr);
    earlier.continued_by = after->id;
    ++earlier.revision;
    batch.changed_jobs.push_back(Row(earlier));
  }
  for (EventRecord& e : EventsOf(*before, event, *after)) {
    batch.events.push_back({after->number, std::move(e)});
  }
  if (const auto* cancel = std::get_if<CancelRequested>(&event.what); cancel && cancel->audit) {
    batch.audit.push_back(*cancel->audit);
  }
  const Refusal refuse =
      store_.Write(std::move(batch), OnFailure::kRetry,
                   [this, after, durable = std::move(durable)](const absl::Status& status) {
                     if (status.ok()) Publish(after);
                     if (durable) durable(status);
                   });
  lock.Unlock();
  LogChange(*before, *after);
  if (refuse) refuse();
  return after;
}

void JobBook::Publish(const Snapshot& job) {
  std::vector<std::weak_ptr<JobListener>> listeners;
  {
    MutexLock lock(mutex_);
    Slot& slot = slots_.at(job->id);
    --slot.writes_in_flight;
    slot.published = job;
    if (IsTerminal(job->state)) {
      listeners = std::move(slot.listeners);
      LetGo(std::move(slot.series));
      LeavePlace(*job);
      if (slot.steps.complete_up_to() < job->spec->facts.steps) {
        ended_.push_back({job, std::move(slot.steps)});
        if (ended_.size() > kMostEnded) ended_.pop_front();
      }
      slots_.erase(job->id);
    } else {
      listeners = slot.listeners;
    }
  }
  if (IsTerminal(job->state)) {
    metrics_.jobs_finished_total.Add({{"outcome", std::string(Name(job->state))}}).Increment();
  }
  if (hook_) hook_(job);
  Notify(listeners);
}

void JobBook::NotifyJob(const std::string& job_id) {
  std::vector<std::weak_ptr<JobListener>> listeners;
  {
    MutexLock lock(mutex_);
    const auto found = slots_.find(job_id);
    if (found != slots_.end()) listeners = found->second.listeners;
  }
  Notify(listeners);
}

void JobBook::Notify(const std::vector<std::weak_ptr<JobListener>>& listeners) {
  for (const auto& weak : listeners) {
    if (const auto listener = weak.lock()) listener->OnJobChanged();
  }
}

void JobBook::SetWaitingReason(const std::string& job_id, const std::string& reason) {
  std::vector<std::weak_ptr<JobListener>> listeners;
  {
    MutexLock lock(mutex_);
    const auto found = slots_.find(job_id);
    if (found == slots_.end()) return;
    Slot& slot = found->second;
    if (slot.writes_in_flight > 0 || !slot.applied->Placeable() ||
        slot.applied->state_reason == reason) {
      return;
    }
    Job job = *slot.applied;
    job.Explain(reason);
    ++job.revision;
    slot.applied = slot.published = std::make_shared<const Job>(std::move(job));
    listeners = slot.listeners;
  }
  Notify(listeners);
}

absl::StatusOr<Snapshot> JobBook::Get(const std::string& job_id,
                                      const std::string& name_space) const {
  absl::StatusOr<Snapshot> job = Get(job_id);
  if (job.ok() && !name_space.empty() && (*job)->spec->facts.name_space != name_space) {
    return NoJob(job_id);
  }
  return job;
}

absl::StatusOr<Snapshot> JobBook::Get(const std::string& job_id) const {
  if (Snapshot live = Published(job_id)) return live;
  const std::optional<uint64_t> number = JobNumber(job_id);
  if (!number) return NoJob(job_id);
  if (DamagedRow(*number)) return Damaged(job_id);
  const absl::StatusOr<StoredJob> stored = store_.GetJob(*number);
  if (absl::IsNotFound(stored.status())) {
    return NoJob(job_id);
  }
  RETURN_IF_ERROR(stored.status());
  return FromStore(*stored);
}

absl::StatusOr<std::vector<Snapshot>> JobBook::List(const JobFilter& filter, uint64_t before,
                                                    size_t limit) const {
  std::vector<Snapshot> jobs;
  for (bool more = true; more && jobs.size() < limit;) {
    ASSIGN_OR_RETURN(const std::vector<StoredJob> rows,
                     store_.ListJobs(filter, before, limit - jobs.size()));
    more = rows.size() == limit - jobs.size();
    for (const StoredJob& row : rows) {
      before = row.number;
      Snapshot job = Published(JobId(row.number));
      // A damaged job is left out, so that the others are listed. The log has named the job.
      if (job == nullptr && !row.damaged && !DamagedRow(row.number)) {
        ASSIGN_OR_RETURN(job, FromStore(row));
      }
      if (job != nullptr) jobs.push_back(std::move(job));
    }
  }
  return jobs;
}

bool JobBook::DamagedRow(uint64_t number) const {
  MutexLock lock(mutex_);
  return damaged_.contains(number);
}

bool JobBook::IsDamaged(const std::string& job_id) const {
  const std::optional<uint64_t> number = JobNumber(job_id);
  {
    MutexLock lock(mutex_);
    if (!number || damaged_.empty()) return false;
    if (damaged_.contains(*number)) return true;
    if (slots_.contains(job_id)) return false;
  }
  // The number of a damaged row may be damaged, too. Then it looks as if this job had never
  // existed.
  return !store_.GetJob(*number).ok();
}

std::vector<Snapshot> JobBook::Live() const {
  MutexLock lock(mutex_);
  std::vector<Snapshot> jobs;
  jobs.reserve(slots_.size());
  for (const auto& [id, slot] : slots_) {
    if (!IsTerminal(slot.applied->state)) jobs.push_back(slot.applied);
  }
  return jobs;
}

std::vector<Snapshot> JobBook::Waiting() const {
  MutexLock lock(mutex_);
  std::vector<Snapshot> jobs;
  for (const auto& [id, slot] : slots_) {
    if (slot.applied->Placeable() && slot.published->Placeable()) jobs.push_back(slot.applied);
  }
  return jobs;
}

Snapshot JobBook::Applied(const std::string& job_id) const {
  MutexLock lock(mutex_);
  const auto found = slots_.find(job_id);
  const bool live = found != slots_.end() && !IsTerminal(found->second.applied->state);
  return live ? found->second.applied : nullptr;
}

Snapshot JobBook::Published(const std::string& job_id) const {
  MutexLock lock(mutex_);
  const auto found = slots_.find(job_id);
  return found == slots_.end() ? nullptr : found->second.published;
}

void JobBook::Subscribe(const std::string& job_id, std::weak_ptr<JobListener> listener) {
  MutexLock lock(mutex_);
  const auto found = slots_.find(job_id);
  if (found == slots_.end()) return;
  auto& listeners = found->second.listeners;
  std::erase_if(listeners, [](const auto& weak) { return weak.expired(); });
  listeners.push_back(std::move(listener));
}

}  // namespace trainyard::controller
