// The worker daemon without its network part: a table of ranks, a thread that watches their
// processes, and an outbox. worker/service brings in the orders and sends the outbox.

#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "worker/daemon/metrics.h"
#include "worker/daemon/outbox.h"
#include "worker/daemon/rank.h"
#include "worker/daemon/reports.h"

namespace trainyard {

// Thread-safe.
class Daemon {
 public:
  // Takes over the ranks that an earlier daemon left in the state directory.
  static absl::StatusOr<std::unique_ptr<Daemon>> Create(DaemonOptions options,
                                                        WorkerMetrics& metrics,
                                                        const Clock& clock = RealClock());
  ~Daemon();  // Leaves the ranks running for the next daemon.

  // Orders. All are idempotent. If one fails, the failure is reported as an exit of its ranks.
  // Starting an epoch kills the job's ranks of earlier epochs here. A superseded epoch is not
  // started.
  void StartRanks(const StartOrder& order);
  void StopRanks(const StopOrder& order);
  void Answer(const RendezvousValue& answer);
  void Acknowledge(uint64_t sequence);

  // Returns the devices on which ranks can run now, for a registration. A lost GPU is not among
  // them.
  std::vector<Device> Devices() const;
  // Returns the ranks that run or whose exits are not acknowledged, for a registration.
  std::vector<RankStatus> Register() const;
  // The controller has registered this worker. All reports that are not acknowledged are sent
  // again.
  void Connected();
  void Disconnected();
  Outbox& outbox() { return outbox_; }

  // From now on no rank starts. Running ranks are asked to save a checkpoint and stop.
  void Drain();
  // Kills all ranks at once because the daemon ends. They are reported as stopped.
  void KillAll();
  size_t num_live_ranks() const;
  // Whether no rank is left and the controller has acknowledged all reports.
  bool idle() const;

 private:
  using ChannelList = std::vector<std::unique_ptr<channel::ChannelServer>>;

  Daemon(DaemonOptions options, WorkerMetrics& metrics, const Clock& clock);
  absl::Status AdoptAll();
  void Run();
  void Poll(ChannelList& closed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PruneDirectories() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StopLocked(const StopOrder& order) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LaunchWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnGet(Rank& rank, const channel::Get& get) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnSet(Rank& rank, const channel::Set& set) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the roots below which the job's paths may lie. PERMISSION_DENIED: there are none.
  absl::StatusOr<std::vector<std::string>> RootsOf(const StartOrder& order) const;
  absl::Status Check(const StartOrder& order, const RankPlacement& rank) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refuse(const RankId& id, uint32_t device, const absl::Status& reason);
  channel::ChannelServer::Callbacks CallbacksFor(const RankId& id);

  const DaemonOptions options_;
  const Clock& clock_;
  Outbox outbox_;

  mutable Mutex mutex_;
  WorkerMetrics& metrics_ ABSL_GUARDED_BY(mutex_);
  std::map<RankId, Rank> ranks_ ABSL_GUARDED_BY(mutex_);
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool prune_ ABSL_GUARDED_BY(mutex_) = true;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration last_poll_ ABSL_GUARDED_BY(mutex_);
  CondVar wake_;
  std::thread thread_;
};

}  // namespace trainyard
