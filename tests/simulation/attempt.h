// One attempt of a job: its ranks are stubs that step in lockstep, and save and load through the
// product's checkpoint directories. It follows worker/trainer/rank_process.cc and
// train/trainer/trainer.cc: meet, begin in the directory, load, tell what is ready and what earlier
// attempts did, step, save, end.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/event_queue.h"
#include "tests/simulation/job_plan.h"
#include "tests/simulation/rank_process.h"
#include "train/checkpoint/load.h"
#include "train/start/start_point.h"

namespace trainyard::simulation {

// What the attempts of all jobs share.
struct AttemptWorld {
  EventQueue& queue;
  std::string share;    // The file system that all machines mount,
  std::string nowhere;  // and what is there where one has not: an empty directory.
  // After a commit: (job id, plan, epoch, step).
  std::function<void(const std::string&, const JobPlan&, int64_t, int64_t)> committed;
};

class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(const AttemptWorld& world, const JobPlan& plan, const StartOrder& order)
      : world_(world), plan_(plan), order_(order), ranks_(plan.ranks) {}

  void Join(std::shared_ptr<RankProcess> rank);
  void Met();  // Another rank has found all its peers.
  // `silently`: with its machine, so that no peer hears of it until that is back.
  void Died(const RankProcess& rank, bool silently);
  void Forget() { ranks_.clear(); }  // They hold it, and it holds them.
  const StartOrder& order() const { return order_; }
  const std::vector<std::shared_ptr<RankProcess>>& ranks() const { return ranks_; }

 private:
  using Step = void (Attempt::*)();
  // Once all ranks act and reach each other.
  void Together(absl::Duration delay, Step action);
  void EndAll(const absl::Status& status);
  void PeerLost(const std::shared_ptr<RankProcess>& rank, const RankProcess& lost);

  void Begin();
  void Load();
  absl::Status LoadState();
  absl::Status LoadFrom(const Checkpoint& checkpoint);
  void Ready();
  void TellEarlierSteps();
  std::vector<LoadableCheckpoint> Loadable() const;
  void RunStep();
  void DoStep();
  bool SeesLaterAttempt();
  void WriteCheckpoint();
  void Commit();
  void Prune();
  void FinishStep(std::optional<channel::Checkpoint> saved);
  void Complete();
  RunState State() const;
  std::string Short(const std::string& text) const;  // Without the path of this run's share.

  const AttemptWorld& world_;
  const JobPlan plan_;
  const StartOrder order_;
  std::vector<std::shared_ptr<RankProcess>> ranks_;
  bool began_ = false, over_ = false;

  RankConfig rank_;
  StartPoint start_;
  std::vector<std::string> refused_;
  uint64_t state_ = 0;
  uint64_t step_ = 0;
  channel::Step record_;
  std::string unsaved_history_;
  std::vector<StoredTensor> written_;
  absl::Duration looked_at_;
};

}  // namespace trainyard::simulation
