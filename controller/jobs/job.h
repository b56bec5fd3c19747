// The controller's record of a job, as plain values. The state machine (job_state.h) changes them,
// the book (book/job_book.h) keeps and publishes them, and the service translates them to messages.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/job_axes.h"
#include "common/spec_path.h"
#include "common/worker_messages.h"

namespace trainyard::controller {

// The numbers are those of the proto enum. The store writes them, too.
enum class JobState : uint8_t {
  kQueued = 1,
  kStarting = 2,
  kRunning = 3,
  kRecovering = 4,
  kStopping = 5,
  kSucceeded = 6,
  kFailed = 7,
  kCancelled = 8,
};
inline constexpr int kNumJobStates = 8;

inline bool IsTerminal(JobState state) { return state >= JobState::kSucceeded; }
// Whether the job waits for its next attempt to train. The numbers of its progress are then those
// of an attempt that has ended, and people are shown no rate and no time left.
inline bool WaitsForAttempt(JobState state) {
  return state == JobState::kStarting || state == JobState::kRecovering;
}
absl::string_view Name(JobState state);  // "queued"

inline constexpr char kDefaultNamespace[] = "default";

// The parts of a spec that the controller itself reads, and who submitted the job. Each group of
// `tensor` consecutive ranks shares a machine.
struct JobFacts : AxisSizes<uint32_t> {
  std::string name;
  std::string model;
  std::string precision;
  uint32_t ranks = 1;
  uint32_t global_batch = 1;
  uint32_t micro_batch = 1;
  uint32_t sequence = 1;
  int32_t priority = 0;
  uint64_t steps = 1;
  uint32_t max_restarts = 3;
  bool cpu_only = false;                // The job's precision exists on CPU ranks alone.
  std::string checkpoint_directory;     // As the spec spells it; empty: no checkpoints.
  uint64_t checkpoint_every_steps = 0;  // 0: at the end only, or never.
  std::string name_space = kDefaultNamespace;
  std::string submitter;  // The submitter's name; empty: not recorded.
  // At the submit, the job's paths lay below these roots. Empty: below any root of a worker.
  std::vector<std::string> roots;
  std::vector<SpecPath> paths;  // All paths in the spec.
  // The job whose run this one continues, and the newest attempt of that run as far as it is known.
  // Empty: the job begins at step 1.
  std::string continues;
  uint64_t continues_epoch = 0;
};

// A spec never changes once it is accepted. All snapshots of the job share it.
struct Spec {
  std::string bytes;  // The submitted message; not parsed here.
  // JSON for the trainers. It is resolved unless an earlier release has stored the job.
  std::string config;
  JobFacts facts;
};

enum class RankPhase : uint8_t {
  kOrdered = 0,  // The worker has not reported yet that the rank runs.
  kStarting = 1,
  kReady = 2,
  kExited = 3,  // The worker has confirmed the rank's end.
  // The worker's lease has expired, or the worker came back without the rank. It counts as dead.
  kLost = 4,
};
inline bool IsGone(RankPhase phase) { return phase >= RankPhase::kExited; }

// One rank of the current attempt. Job::ranks has the ranks in order.
struct Rank {
  std::string worker_id;
  std::string hostname;
  uint32_t device = 0;
  RankPhase phase = RankPhase::kOrdered;
  ExitCause cause = ExitCause::kNone;
};

struct Checkpoint {
  uint64_t step = 0;
  uint64_t epoch = 0;
  std::string path;
  uint64_t size_bytes = 0;
  absl::Time create_time;
};

// The step from which an attempt resumed training.
struct Resume {
  uint64_t epoch = 0;
  uint64_t step = 0;
};

// Returns the resume because of which this step of this attempt does not count: a later attempt has
// begun before the step. Null: the step counts. `resumes` as in Job.
const Resume* SupersededBy(const std::vector<Resume>& resumes, uint64_t epoch, uint64_t step);

// Every step after this one has so many tokens.
struct BatchFrom {
  uint64_t step = 0;
  uint64_t tokens = 0;
  bool operator==(const BatchFrom&) const = default;
};

struct Progress {
  // The last finished step. A new attempt sets it back to the step where it resumes.
  uint64_t step = 0;
  // The last step that any attempt has finished. Up to it, steps are repeated.
  uint64_t furthest_step = 0;
  std::optional<StepNumbers> numbers = {};  // Of `step`; absent: not known.
  // Of the newest validated step that counts, which `step` need not be. Absent: not known, or there
  // is none.
  std::optional<double> validation_loss = {};
  double tokens_per_second = 0;  // Of `step`, over the same seconds as mfu; 0: not known.
  double seconds_per_step = 0;   // Smoothed; includes waiting, saving and validation.
  double peak_flops = 0;         // To which mfu is relative: of all ranks, per second. 0: unknown.

  std::optional<double> loss() const {
    return numbers ? std::optional(numbers->loss) : std::nullopt;
  }
  std::optional<double> mfu() const { return numbers ? numbers->mfu : std::nullopt; }
  // Sets `step` to the one from which an attempt resumes. The numbers of another step are then not
  // known until the attempt's first step.
  void ResumeFrom(uint64_t resumed_step);
};

struct Job {
  std::string id;
  uint64_t number = 0;  // Grows with each new job; the id is made from it.
  std::shared_ptr<const Spec> spec;
  JobState state = JobState::kQueued;
  std::string state_reason;  // For people: what happened, then the consequence.
  std::string happened;      // The parts of state_reason. Both are often empty.
  std::string consequence;
  uint64_t revision = 0;
  uint64_t epoch = 0;  // Attempt number; 0 before the first.
  uint32_t restarts = 0;
  uint32_t restarts_without_progress = 0;
  // The latest step of any checkpoint so far. Only a checkpoint of a later step is progress.
  uint64_t furthest_checkpoint = 0;
  absl::Time create_time;
  std::optional<absl::Time> start_time;
  std::optional<absl::Time> finish_time;
  std::vector<Rank> ranks;  // Of the current attempt.
  Progress progress;
  // Where the current attempt resumed. Absent until rank 0 has reported it.
  std::optional<uint64_t> resumed_step;
  // Both epochs and steps increase: a resume removes all earlier resumes from the same or a later
  // step.
  std::vector<Resume> resumes;
  bool claimed = false;      // An attempt has claimed the checkpoint directory for the job.
  uint64_t epoch_floor = 0;  // The next attempt's number is greater.
  // Attempts since the last progress that ended because of the checkpoint directory: the directory
  // was not as the job left it, or its disk was full.
  uint32_t storage_faults = 0;
  std::map<std::string, uint32_t> strikes;  // By worker: how many attempts it has failed.
  std::set<std::string> earlier_workers;    // Workers of all attempts before the current one.
  std::string continued_by;                 // The job that has taken over this one's run.
  // The batches of the jobs whose run this one continues, as far as they have trained it, in the
  // order of their steps. Empty: the job continues none, or the controller does not know it.
  std::vector<BatchFrom> earlier_batches;
  // Checkpoints that were recorded and not removed since; oldest first, at most kMaxCheckpoints.
  std::vector<Checkpoint> checkpoints;
  std::optional<BestCheckpoint> best_checkpoint;  // As rank 0 last reported it.

  // These describe an attempt that is ending (kRecovering, kStopping).
  StopMode stop_mode = StopMode::kKill;
  JobState outcome = JobState::kFailed;  // In kStopping: the state that the job gets at the end.
  ExitCause culprit = ExitCause::kNone;  // Why the attempt ended; kNone: no rank caused it.
  absl::Time attempt_end_time;

  void Explain(std::string what, std::string what_comes = "");
  bool AllRanksGone() const;
  // Whether the job's ranks may be placed: the job waits, and no rank of an earlier attempt is
  // alive.
  bool Placeable() const;
  // Whether this worker has a rank of the current attempt that is not gone.
  bool IsOn(const std::string& worker_id) const;
  // Whether this worker has, or had, a rank of any attempt. Other workers may not report about the
  // job.
  bool WasOn(const std::string& worker_id) const;
  // The last step of the jobs that this one continues. Absent: it continues none, or has not begun.
  std::optional<uint64_t> ContinuedFrom() const;
  // The batches of the whole run, from its first step on. Empty: not known.
  std::vector<BatchFrom> Batches() const;
  // The tokens up to progress.step, each counted once. Absent: not known, because the controller
  // does not know the jobs before this one, or not yet from which step this one goes on.
  std::optional<uint64_t> TokensSeen() const;
};

using Snapshot = std::shared_ptr<const Job>;

enum class EventType : uint8_t {
  kSubmitted = 1,
  kPlaced = 2,
  kRunning = 3,
  kCheckpointed = 4,
  kRankExited = 5,
  kWorkerLost = 6,
  kRecovering = 7,
  kCancelRequested = 8,
  kFinished = 9,
  kWarning = 10,
};

struct EventRecord {
  absl::Time time;
  EventType type = EventType::kWarning;
  uint64_t epoch = 0;
  std::string message;  // For people.
};

}  // namespace trainyard::controller
