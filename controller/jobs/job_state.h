// The life of a job as a pure function: what happens to it, and what it is then. No I/O, no clock.
//
//   QUEUED -> STARTING -> RUNNING -> SUCCEEDED
//               |            |
//               +-- a rank dies, a worker is lost or drains --> RECOVERING -> STARTING (next epoch)
//               +-- cancelled, or failed for good ------------> STOPPING   -> CANCELLED | FAILED
//
// RECOVERING and STOPPING hold their devices until every rank is gone. Only a committed checkpoint
// beyond all earlier ones is progress; restarts without progress are bounded, restarts that a lost
// or draining machine caused do not count, nor do those that storage caused: a directory that a
// host does not have as the job left it says nothing about the job.

#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/jobs/job.h"
#include "security/audit_entry.h"

namespace trainyard::controller {

// The scheduler gave it devices: a new attempt begins. One entry a rank.
struct Placed {
  std::vector<Rank> ranks;
};

struct RankReported {
  uint64_t epoch = 0;
  uint32_t rank = 0;
  RankState state = RankState::kStarting;
  ExitCause cause = ExitCause::kNone;  // With kExited.
  int signal = 0;
  int exit_code = 0;
  std::string message;             // The trainer's last words.
  std::string worker_id;           // Who says so.
  std::optional<Resumed> resumed;  // With kReady, from rank 0.
};

// A worker's lease ran out: its ranks of every attempt count as dead.
struct WorkerGone {
  std::string worker_id;
};

// A worker that came back does not know a rank that it ran: the machine restarted in between.
struct RankVanished {
  uint64_t epoch = 0;
  uint32_t rank = 0;
};

// A save failed, and training goes on.
struct CheckpointFailed {
  uint64_t epoch = 0;
  uint64_t step = 0;
  std::string worker_id;
  std::string error;
};

struct CheckpointCommitted {
  Checkpoint checkpoint;
  std::string worker_id;
  // The job's checkpoints that exist; where it names any, the others are forgotten.
  std::vector<CheckpointId> retained;
};

struct CancelRequested {
  std::string reason;                    // The user's words; may be empty.
  std::optional<AuditEntry> audit = {};  // Becomes durable with the event.
};

// Ranks were told to checkpoint and stop, and did not within the time for it.
struct StopOverdue {};

struct JobEvent {
  absl::Time time;
  std::variant<Placed, RankReported, WorkerGone, RankVanished, CheckpointCommitted,
               CheckpointFailed, CancelRequested, StopOverdue>
      what;
};

// The job after the event; revision is the caller's. FAILED_PRECONDITION: the event does not apply
// (a superseded epoch, a rank of another worker, a finished job): nothing changed, and the caller
// drops it. ALREADY_EXISTS: it was told before, which is normal after a reconnect.
absl::StatusOr<Job> Apply(const Job& job, const JobEvent& event);

// What to tell people and the log about that change.
std::vector<EventRecord> EventsOf(const Job& before, const JobEvent& event, const Job& after);

// Whether this worker may speak for this rank of this attempt: the fence against a superseded epoch
// and against a worker that was declared lost.
absl::Status CheckFence(const Job& job, uint64_t epoch, uint32_t rank,
                        const std::string& worker_id);

// Likewise for a record of a step that this attempt ran. An earlier attempt's steps count up to
// where its successor resumed, whichever worker of the job tells them; those of the current one
// count although its worker was declared lost, as long as nobody has taken its place.
absl::Status CheckStepFence(const Job& job, uint64_t epoch, uint64_t step, uint32_t rank,
                            const std::string& worker_id);

inline constexpr size_t kMaxCheckpoints = 64;  // Listed of a job: the newest.

// A worker that has failed so many attempts of a job is avoided when the job is placed.
inline constexpr uint32_t kMostStrikes = 2;

}  // namespace trainyard::controller
