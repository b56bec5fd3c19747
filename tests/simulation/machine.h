// A machine of the cluster: its disk, the way to the controller, and the daemon, which does what
// worker/daemon/daemon.cc and rank.cc do, with the product's outbox, and talks as
// worker/service/controller_stream.cc does.

#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "tests/simulation/attempt.h"
#include "tests/simulation/controller_process.h"
#include "tests/simulation/network.h"
#include "tests/simulation/rank_process.h"
#include "worker/daemon/outbox.h"

namespace trainyard::simulation {

// What the machines share.
struct MachineWorld {
  EventQueue& queue;
  ControllerProcess& controller;
  std::function<std::shared_ptr<Attempt>(const StartOrder&)> attempt_of;
};

class DaemonProcess {
 public:
  DaemonProcess(const MachineWorld& world, Machine& machine, std::string instance);

  Process& process() { return process_; }
  bool registered() const { return registered_; }
  size_t num_reports() const { return outbox_.num_reports(); }

  // From the ranks of this machine.
  void OnMessage(const RankId& id, const channel::Message& message);
  void OnGet(const RankId& id, const std::string& key);
  void OnProcessGone(const RankId& id);
  void KillHung(const RankId& id, const std::string& reason);
  void OnThaw();

  // `politely`: the kernel closes its stream; otherwise the power goes, and nobody hears of it.
  void Die(bool politely);
  void LoseStream();  // Keep-alive pings were not answered.

 private:
  enum class Phase { kWaiting, kRunning, kExited };
  struct Rank {
    StartOrder order;
    uint32_t device = 0;
    Phase phase = Phase::kWaiting;
    RankExit exit;
    uint64_t exit_sequence = 0;
    bool kill_ordered = false;
    std::string hung;
    std::set<std::string> gets;
    uint64_t last_step = 0, last_checkpoint = 0;  // Sequences of the newest in the spools.
  };

  void Adopt();
  void AdoptRank(const RankId& id, RankFolder& folder);
  RankStatus StatusOf(const RankId& id) const;
  void Launch(const RankId& id);
  void LaunchWaiting();
  void PollEnd(const RankId& id);
  void Exited(const RankId& id, const RankExit& exit);
  void Kill(const RankId& id);
  void TellSpooled(const RankId& id, const channel::Message& message);

  void StartRanks(const StartOrder& order);
  void StopRanks(const StopOrder& order);
  void Answer(const RendezvousValue& answer);
  void Acknowledge(uint64_t sequence);

  void Dial();
  void Redial();
  void Receive(const std::optional<v1::ConnectResponse>& response);
  void Registered();
  void Flush();
  void Beat(uint64_t connection);
  void EndStream();

  const MachineWorld& world_;
  Machine& machine_;
  const std::string instance_;
  Process process_;
  Outbox outbox_;
  std::map<RankId, Rank> ranks_;
  Stream stream_;
  uint64_t connection_ = 0;  // Of the stream, counted.
  bool registered_ = false;
  absl::Duration pause_ = absl::Milliseconds(100);
  absl::Duration last_sent_;
};

class Machine {
 public:
  Machine(const MachineWorld& world, std::string id, uint32_t devices)
      : world_(world), id_(std::move(id)), devices_(devices) {}

  const std::string& id() const { return id_; }
  uint32_t devices() const { return devices_; }
  EventQueue& queue() const { return world_.queue; }
  Way& way() { return way_; }
  DaemonProcess* daemon() { return daemon_.get(); }  // Null: there is none.
  RankFolder& folder(const RankId& id) { return folders_[id]; }
  std::map<RankId, RankFolder>& folders() { return folders_; }

  bool mounted = true;    // Whether the share is there for what begins now.
  bool gone = false;      // For ever.
  bool isolated = false;  // Cut off from its peers, too.

  void StartDaemon();
  void OnProcessGone(const RankId& id);
  // Faults. Each comes back after `away`, but the last.
  void CrashDaemon(absl::Duration away);
  void FreezeDaemon(absl::Duration away);
  void CutWay(absl::Duration away, bool from_peers);
  void Reboot(absl::Duration away);
  void Vanish();

 private:
  void LosePower();

  const MachineWorld& world_;
  const std::string id_;
  const uint32_t devices_;
  Way way_;
  std::map<RankId, RankFolder> folders_;
  std::unique_ptr<DaemonProcess> daemon_;
  uint64_t daemons_ = 0;
};

}  // namespace trainyard::simulation
