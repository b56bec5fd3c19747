// What tests of the worker share: a directory, waiting for a condition, the programs under test,
// and orders for the fake trainer.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "worker/daemon/daemon.h"
#include "worker/daemon/outbox.h"
#include "worker/daemon/reports.h"

namespace trainyard {

// Gone with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Whether the condition came true; a minute is for machines that are busy, not a measure of time.
bool WaitFor(const std::function<bool()>& condition, absl::Duration timeout = absl::Minutes(1));

std::string WorkerProgram();
std::string FakeTrainer();
std::string SyncShim();  // sync_shim.cc.

// The job config that makes the fake trainer do these things.
std::string Job(const std::vector<std::string>& actions);
// One rank, 0 on device 0, of a world of one.
StartOrder Order(const std::string& job, uint64_t epoch, const std::vector<std::string>& actions);

// With the fake trainer, two devices, and `state` as state directory and root.
DaemonOptions TestOptions(const std::string& state);

// All of a rank's log so far.
std::string LogText(const std::string& rank_directory);

// Takes what a daemon says and remembers it, acknowledging nothing by itself.
class Listener {
 public:
  explicit Listener(Outbox& outbox) : outbox_(outbox) {}

  // Waits until a status with this state of this rank has been heard, and returns the latest such.
  std::optional<RankStatus> Await(const RankId& id, RankState state);
  // Waits until as many steps, or checkpoints, have been heard of.
  bool AwaitSteps(size_t count);
  bool AwaitCheckpoints(size_t count);
  bool AwaitLog(const std::string& text);

  uint64_t last_sequence() const { return last_sequence_; }
  const std::vector<StepReport>& steps() const { return steps_; }
  const std::vector<CheckpointReport>& checkpoints() const { return checkpoints_; }
  const std::vector<RankStatus>& statuses() const { return statuses_; }
  const std::vector<Notice>& notices() const { return notices_; }
  // The order of arrival: "status", "step", "checkpoint".
  const std::vector<std::string>& kinds() const { return kinds_; }

 private:
  bool Hear(const std::function<bool()>& condition);
  void Take(const Outgoing& outgoing);

  Outbox& outbox_;
  uint64_t last_sequence_ = 0;
  std::vector<RankStatus> statuses_;
  std::vector<StepReport> steps_;
  std::vector<CheckpointReport> checkpoints_;
  std::vector<Notice> notices_;
  std::vector<std::string> kinds_;
};

}  // namespace trainyard
