// The life of a job as a pure function from a job and an event to the job afterwards. It does no
// I/O and reads no clock.
//
//   QUEUED -> STARTING -> RUNNING -> SUCCEEDED
//               |            |
//               +-- a rank dies, a worker is lost or drains --> RECOVERING -> STARTING (next epoch)
//               +-- cancelled, or failed for good ------------> STOPPING   -> CANCELLED | FAILED
//
// In RECOVERING and STOPPING a job holds its devices until every rank is gone. Progress is a
// committed checkpoint of a later step than all earlier checkpoints. The number of restarts without
// progress is limited. Restarts caused by a lost or draining machine do not count. Neither do
// restarts caused by storage, because a directory that a host does not have as the job left it is
// no fault of the job.

#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/jobs/job.h"
#include "security/audit_entry.h"

namespace trainyard::controller {

// The scheduler has given the job devices, so a new attempt begins. One entry for each rank.
struct Placed {
  std::vector<Rank> ranks;
};

struct RankReported {
  uint64_t epoch = 0;
  uint32_t rank = 0;
  RankState state = RankState::kStarting;
  ExitCause cause = ExitCause::kNone;  // Set with kExited.
  int signal = 0;
  int exit_code = 0;
  std::string message;                 // The trainer's last message.
  std::string worker_id;               // The worker that reports this.
  std::optional<StartRecord> resumed;  // Set with kReady, by rank 0.
};

// A worker's lease has expired. Its ranks of every attempt count as dead.
struct WorkerGone {
  std::string worker_id;
};

// A worker came back without a rank that it had run, because its machine was restarted in between.
struct RankVanished {
  uint64_t epoch = 0;
  uint32_t rank = 0;
};

// A save has failed. Training goes on.
struct CheckpointFailed {
  uint64_t epoch = 0;
  uint64_t step = 0;
  std::string worker_id;
  std::string error;
};

struct CheckpointCommitted {
  Checkpoint checkpoint;
  std::string worker_id;
  // The job's checkpoints that exist. If there are any, checkpoints that are not among them are
  // forgotten.
  std::vector<CheckpointId> retained;
  std::optional<BestCheckpoint> best = {};  // Of the job's checkpoints, this one included.
};

struct CancelRequested {
  std::string reason;                    // The user's text; may be empty.
  std::optional<AuditEntry> audit = {};  // Becomes durable with the event.
};

// Ranks that were told to save a checkpoint and stop did not do so in time.
struct StopOverdue {};

struct JobEvent {
  absl::Time time;
  std::variant<Placed, RankReported, WorkerGone, RankVanished, CheckpointCommitted,
               CheckpointFailed, CancelRequested, StopOverdue>
      what;
};

// Returns the job after the event. The caller sets the revision. FAILED_PRECONDITION: the event
// does not apply, because it is of a superseded epoch, of a rank of another worker, or of a
// finished job; nothing changes, and the caller drops the event. ALREADY_EXISTS: the event was
// reported before, which is normal after a reconnect.
absl::StatusOr<Job> Apply(const Job& job, const JobEvent& event);

// Returns the entries of the job's event log for this change.
std::vector<EventRecord> EventsOf(const Job& before, const JobEvent& event, const Job& after);

// OK: this worker may report for this rank of this attempt. This is the fence against superseded
// epochs and against workers that were declared lost.
absl::Status CheckFence(const Job& job, uint64_t epoch, uint32_t rank,
                        const std::string& worker_id);

// OK: the record of this step counts. Steps of an earlier attempt count up to the step where the
// next attempt resumed, and any worker of the job may report them. Steps of the current attempt
// count even if the worker was declared lost, as long as no new attempt has begun, and even if the
// job has ended.
absl::Status CheckStepFence(const Job& job, uint64_t epoch, uint64_t step, uint32_t rank,
                            const std::string& worker_id);

inline constexpr size_t kMaxCheckpoints = 64;  // The newest checkpoints that a job lists.

// A worker that has failed this many attempts of a job is avoided when the job is placed again.
inline constexpr uint32_t kMostStrikes = 2;

}  // namespace trainyard::controller
