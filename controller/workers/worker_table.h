// The workers that the controller knows, their leases, and the old ranks that still occupy devices.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "controller/workers/messages.h"

namespace trainyard::controller {

enum class WorkerState : uint8_t { kReady = 1, kLost = 2, kDraining = 3 };

// A rank that a worker runs although no current attempt of a job wants it. Its device is free once
// the worker has confirmed the rank's end.
struct StaleRank {
  uint64_t epoch = 0;
  uint32_t device = 0;
};

struct Worker {
  Registration registration;  // `running` is empty here.
  WorkerState state = WorkerState::kReady;
  absl::Time register_time;
  absl::Time last_heartbeat_time;
  absl::Duration last_heard;  // Monotonic.
  absl::Duration lease;       // How long the worker may be silent.
  // A monotonic time. The time to wait for a detached worker ends then, too.
  absl::Duration lease_end;
  // The number of the current stream. 0: the worker is expected back after a restart.
  uint64_t session = 0;
  bool left = false;  // The worker drained and its stream has ended, so nobody waits for it.
  std::shared_ptr<WorkerLink> link;                             // Null while disconnected.
  std::map<std::pair<std::string, uint32_t>, StaleRank> stale;  // By job and rank.
  absl::Duration stale_log_due;  // A monotonic time: when to log stale ranks again.
  // The last order that was sent, by job.
  std::map<std::string, std::tuple<uint64_t, bool, StopMode>> told;

  const Device* FindDevice(uint32_t index) const;
  // Whether metrics count the worker.
  bool counts() const { return session != 0 && !left; }
};

// One stream of one worker. The table ignores what an older stream says.
struct Session {
  std::string worker_id;
  uint64_t number = 0;
};

// How often a worker sends a beat when it has nothing else to say, and how long it may be silent.
struct Pace {
  absl::Duration beat = absl::Seconds(2);
  absl::Duration lease = absl::Seconds(6);
};

// Not thread-safe.
class WorkerTable {
 public:
  // With more workers than this, each sends beats more rarely, so that all send 2,000 a second.
  static constexpr size_t kLargeFleet = 4'000;

  // `pace` is the pace of a small fleet.
  WorkerTable(const Clock& clock, Pace pace) : clock_(clock), pace_(pace), told_(pace) {}

  // Expects a worker that ran ranks before this controller started. The worker is lost unless it
  // registers within `grace`. Until then no other worker is lost for being silent: all workers come
  // back at the same time, and their messages wait to be read.
  void Expect(const std::string& worker_id, absl::Duration grace);

  // Registers a worker. Closes the previous stream of this process, if one is open, with ABORTED.
  // ALREADY_EXISTS: another process is connected with this worker_id, as when somebody has copied a
  // worker's state directory.
  absl::StatusOr<Worker*> Connect(Registration registration, std::shared_ptr<WorkerLink> link);

  // The pace for the present number of workers.
  Pace pace() const;
  // Gives all connected workers the lease of pace() if this lease has grown by a quarter since the
  // last time. Returns these workers: the caller must tell them.
  std::vector<Worker*> SlowDown();

  // Renews the worker's lease. Null: a newer stream replaces this one, or the worker is lost.
  Worker* Hear(const Session& session);
  // Notes that the stream was closed, because the daemon's process has ended or has closed it. The
  // ranks may live on. So the worker is not lost before Registration::detach is over, unless it
  // drains. (A worker that is silent on an open stream is lost after its lease.) Returns false if a
  // newer stream replaces this one.
  bool Disconnect(const Session& session);
  // Drops the worker's stream, if it has one, and ends its lease. Returns false if a newer stream
  // replaces this one, or if the worker is lost.
  bool Expel(const Session& session);

  // Declares those workers lost whose leases are over, closes their streams, and returns their ids.
  // Call this at least once a second: a longer gap counts as a pause of this process (as on a
  // suspended machine), by which all leases are extended.
  std::vector<std::string> Expire();

  Worker* Find(const std::string& worker_id);
  const std::map<std::string, Worker>& workers() const { return workers_; }

 private:
  // The end of the lease of a worker that was heard just now.
  absl::Duration LeaseEnd(const Worker& worker) const;

  const Clock& clock_;
  const Pace pace_;
  Pace told_;  // The slowest pace that workers were told to keep.
  absl::Duration grace_end_ = -absl::InfiniteDuration();
  uint64_t last_session_ = 0;
  absl::Duration last_expire_ = clock_.Monotonic();
  std::map<std::string, Worker> workers_;
};

}  // namespace trainyard::controller
