// What the controller knows of a job. Plain values: the state machine (job_state.h) changes them,
// the book (book/job_book.h) keeps and publishes them, the service translates them to the wire's
// messages.

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

namespace trainyard::controller {

// Numbered as on the wire; the store keeps the number.
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
absl::string_view Name(JobState state);  // "queued"

inline constexpr char kDefaultNamespace[] = "default";

// A path that a spec names, with its field: "checkpoint.directory".
struct SpecPath {
  std::string field;
  std::string path;
};

// What the controller itself reads of a spec, and what it knows of who submitted it. Groups of
// `tensor` consecutive ranks share a machine.
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
  bool cpu_only = false;                // Its precision exists on CPU ranks alone.
  std::string checkpoint_directory;     // As given; empty: none.
  uint64_t checkpoint_every_steps = 0;  // 0: at the end only, or never.
  std::string name_space = kDefaultNamespace;
  std::string submitter;  // The name of who submitted it; empty: not recorded.
  // Its paths lay below these when it was submitted; empty: wherever a worker admits it.
  std::vector<std::string> roots;
  std::vector<SpecPath> paths;  // All that it names.
};

// Immutable once accepted, and shared by every snapshot of the job.
struct Spec {
  std::string bytes;   // The wire message, as submitted; opaque here.
  std::string config;  // As JSON, for trainers; resolved, unless an earlier release stored the job.
  JobFacts facts;
};

enum class RankState : uint8_t { kStarting = 1, kReady = 2, kExited = 3 };

enum class ExitCause : uint8_t {
  kNone = 0,
  kCompleted = 1,
  kStopped = 2,
  kBadInput = 3,
  kNotFinite = 4,
  kPeerLost = 5,
  kDeviceError = 6,
  kSignal = 7,
  kOther = 8,
  kHung = 9,
  kStorage = 10,     // Its host does not have the checkpoint directory as the job left it.
  kSuperseded = 11,  // A later attempt has begun in the checkpoint directory.
};

enum class RankPhase : uint8_t {
  kOrdered = 0,  // Its worker has not said that it runs.
  kStarting = 1,
  kReady = 2,
  kExited = 3,  // Confirmed gone.
  kLost = 4,    // Its worker's lease ran out, or it came back without the rank: counts as dead.
};
inline bool IsGone(RankPhase phase) { return phase >= RankPhase::kExited; }

// One rank of the current attempt; a job's ranks lie in rank order.
struct Rank {
  std::string worker_id;
  std::string hostname;
  uint32_t device = 0;
  RankPhase phase = RankPhase::kOrdered;
  ExitCause cause = ExitCause::kNone;
};

enum class StopMode : uint8_t { kCheckpoint = 1, kKill = 2 };

struct CheckpointId {
  uint64_t epoch = 0;
  uint64_t step = 0;
};

struct Checkpoint {
  uint64_t step = 0;
  uint64_t epoch = 0;
  std::string path;
  uint64_t size_bytes = 0;
  absl::Time create_time;
};

// From which step an attempt went on.
struct Resume {
  uint64_t epoch = 0;
  uint64_t step = 0;
};

// What rank 0 says of how its attempt began.
struct Resumed {
  uint64_t step = 0;                      // Of the checkpoint that it loaded; 0: none.
  std::vector<std::string> refused = {};  // Why it could not use newer ones.
  std::vector<Checkpoint> loadable = {};  // What the directory holds, newest first; no create_time.
  std::vector<Resume> earlier = {};  // Attempts that it builds on and nobody told of; oldest first.
};

struct Progress {
  uint64_t step = 0;           // Last finished one; a new attempt goes back to where it resumes.
  uint64_t furthest_step = 0;  // Ever finished: up to it, an attempt repeats steps.
  double loss = 0;
  std::optional<double> validation_loss;  // Latest.
  double tokens_per_second = 0;           // Smoothed over recent steps.
  double seconds_per_step = 0;            // Smoothed; data wait and checkpoints included.
  std::optional<double> mfu;
};

struct Job {
  std::string id;
  uint64_t number = 0;  // Orders jobs by creation; the id spells it.
  std::shared_ptr<const Spec> spec;
  JobState state = JobState::kQueued;
  std::string state_reason;  // For people: what happened, and behind it what comes of it.
  std::string consequence;   // The latter, with which state_reason ends; often empty.
  uint64_t revision = 0;
  uint64_t epoch = 0;  // Attempt number; 0 before the first.
  uint32_t restarts = 0;
  uint32_t restarts_without_progress = 0;
  uint64_t furthest_checkpoint = 0;  // Step ever recorded: only a checkpoint beyond it is progress.
  absl::Time create_time;
  std::optional<absl::Time> start_time;
  std::optional<absl::Time> finish_time;
  std::vector<Rank> ranks;  // Of the current attempt.
  Progress progress;
  std::optional<uint64_t> resumed_step;  // Of the current attempt, once rank 0 has said it.
  // Epochs and steps both grow: a resume removes earlier ones from the same step or a later one.
  std::vector<Resume> resumes;
  bool claimed = false;      // An attempt has made the checkpoint directory the job's own.
  uint64_t epoch_floor = 0;  // The next attempt has a number beyond it.
  // Attempts in a row that did not find the directory as it was left.
  uint32_t storage_faults = 0;
  std::map<std::string, uint32_t> strikes;  // By worker: attempts that it has failed.
  std::set<std::string> earlier_workers;    // That attempts before the current one ran on.
  std::vector<Checkpoint> checkpoints;  // Recorded and not removed since; oldest first, bounded.

  // Of an attempt that is ending (kRecovering, kStopping).
  StopMode stop_mode = StopMode::kKill;
  JobState outcome = JobState::kFailed;  // In kStopping: what the job becomes.
  ExitCause culprit = ExitCause::kNone;  // Why the attempt ended; kNone: no rank's fault.
  absl::Time attempt_end_time;

  void Explain(std::string happened, std::string what_comes = "");
  // The state_reason without its consequence. Points into it.
  absl::string_view Happened() const;
  bool AllRanksGone() const;
  // Its ranks may be placed: it waits, and nothing of an earlier attempt is alive.
  bool Placeable() const;
  // Whether this worker has a rank of the current attempt that is not gone.
  bool IsOn(const std::string& worker_id) const;
  // Whether it has, or had, a rank of any attempt. To others the job is none of their business.
  bool WasOn(const std::string& worker_id) const;
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

struct LogRecord {
  absl::Time time;
  uint64_t epoch = 0;
  uint32_t rank = 0;
  std::string text;
};

}  // namespace trainyard::controller
