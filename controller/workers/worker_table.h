// Every worker the controller knows, its lease, and what occupies its devices beside the current
// ranks.

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

// A rank that a worker runs although nothing current asks for it: its device is not free until it
// is confirmed gone.
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
  absl::Duration lease;       // How long it may be silent.
  absl::Duration lease_end;   // Monotonic. Of a detached one: when it is no longer waited for.
  uint64_t session = 0;       // Of the current stream; 0: none yet, expected back after a restart.
  bool left = false;          // Its stream ended after it had drained: nobody waits for it.
  std::shared_ptr<WorkerLink> link;                             // Null while disconnected.
  std::map<std::pair<std::string, uint32_t>, StaleRank> stale;  // By job and rank.
  absl::Duration stale_log_due;  // Monotonic: not to be logged before.
  std::map<std::string, std::tuple<uint64_t, bool, StopMode>> told;  // By job: the last order sent.

  const Device* FindDevice(uint32_t index) const;
  // Whether metrics count it.
  bool counts() const { return session != 0 && !left; }
};

// One stream of one worker: what an older stream says is ignored.
struct Session {
  std::string worker_id;
  uint64_t number = 0;
};

// How often a worker is heard when it has nothing to say, and how long it may be silent.
struct Pace {
  absl::Duration beat = absl::Seconds(2);
  absl::Duration lease = absl::Seconds(6);
};

// Not thread-safe.
class WorkerTable {
 public:
  // From how many workers on beats are rarer, so that all together send 2,000 a second.
  static constexpr size_t kLargeFleet = 4'000;

  // `pace` is that of a small fleet.
  WorkerTable(const Clock& clock, Pace pace) : clock_(clock), pace_(pace), told_(pace) {}

  // A worker that ran ranks before this controller started: lost unless it registers within
  // `grace`. Until then no other is lost for its silence either: all come back at once, and what
  // they say waits for its turn.
  void Expect(const std::string& worker_id, absl::Duration grace);

  // The previous stream of that worker, if open, is closed with ABORTED. ALREADY_EXISTS: another
  // process has the stream of this worker_id, and its lease: a copy of a state directory.
  absl::StatusOr<Worker*> Connect(Registration registration, std::shared_ptr<WorkerLink> link);

  // Of as many workers as there are now.
  Pace pace() const;
  // Gives workers the leases of pace(), where that has grown by a quarter since anybody was told,
  // and returns those that have a stream: they must be told.
  std::vector<Worker*> SlowDown();

  // Renews the lease. Null: the stream has been superseded, or the worker was declared lost.
  Worker* Hear(const Session& session);
  // The stream was closed: the daemon's process ended, or said so. Its ranks may live on, and for
  // Registration::detach the worker is not lost, unless it drains. A worker that is silent on an
  // open stream is lost after the lease. False: that stream had been superseded.
  bool Disconnect(const Session& session);
  // Its stream is gone, if it has one, and its lease is over. False: that stream had been
  // superseded, or the worker is lost.
  bool Expel(const Session& session);

  // Declares workers lost whose lease is over, and closes their streams. Their ids. A pause of this
  // process (a suspended machine) is not held against the workers: call at least once a second.
  std::vector<std::string> Expire();

  Worker* Find(const std::string& worker_id);
  const std::map<std::string, Worker>& workers() const { return workers_; }

 private:
  // Of a worker that was heard just now.
  absl::Duration LeaseEnd(const Worker& worker) const;

  const Clock& clock_;
  const Pace pace_;
  Pace told_;  // The slowest.
  absl::Duration grace_end_ = -absl::InfiniteDuration();
  uint64_t last_session_ = 0;
  absl::Duration last_expire_ = clock_.Monotonic();
  std::map<std::string, Worker> workers_;
};

}  // namespace trainyard::controller
