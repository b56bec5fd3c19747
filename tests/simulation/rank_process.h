// A trainer with its supervisor, and what it keeps on its machine's disk (worker/daemon/
// rank_directory.h): that outlives the process, and the daemon.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/process.h"
#include "worker/channel/messages.h"
#include "worker/daemon/reports.h"

namespace trainyard::simulation {

class Attempt;
class Machine;
class RankProcess;

struct RankFolder {
  bool exists = false;  // Not of a rank that waits for its device.
  uint32_t device = 0;
  bool reported = false;
  std::optional<RankExit> exit_report;
  std::optional<channel::Ready> ready;
  std::vector<channel::Set> sets;
  std::vector<channel::Step> steps;  // Spools: what the controller has not acknowledged.
  std::vector<channel::Checkpoint> checkpoints;
  std::vector<channel::Message> unsent;  // What no daemon took.
  bool synced = false;                   // The supervisor has seen the end, and synced all that.
  std::shared_ptr<RankProcess> process;  // Null or dead: it has ended.
};

class RankProcess {
 public:
  RankProcess(EventQueue& queue, Machine& machine, RankId id, std::shared_ptr<Attempt> attempt);

  Process& process() { return process_; }
  const Process& process() const { return process_; }
  Machine& machine() const { return machine_; }
  const RankId& id() const { return id_; }

  // Finds the peers by the rendezvous.
  void Meet(uint32_t world);
  bool met() const { return wanted_.empty(); }
  void OnValue(const std::string& key);

  // To the daemon, now or once there is one that acts.
  void Report(channel::Message message);
  void Deliver();
  void Reconnect();  // To a new daemon, which has forgotten what is waited for.

  void Exit(const RankExit& exit);  // In order, or by a signal; its supervisor reports it.
  void LosePower();                 // Without a word.

 private:
  RankFolder& folder() const;

  Machine& machine_;
  const RankId id_;
  const std::shared_ptr<Attempt> attempt_;
  Process process_;
  std::set<std::string> wanted_;                // Keys of the rendezvous.
  std::vector<channel::Message> kept_;          // Not taken by the daemon.
  std::optional<channel::Message> last_taken_;  // Its acknowledgement may be lost.
};

}  // namespace trainyard::simulation
