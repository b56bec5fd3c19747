// A controller and its workers on this machine, as children of this process: what `trainyard up`
// runs.

#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/output.h"

namespace trainyard::cli {

struct LocalServiceOptions {
  int workers = 1;
  int devices_per_worker = 0;     // CPU ranks; 0: one each, and GPUs in their place for one worker.
  uint64_t patience_seconds = 0;  // Of the workers with their ranks; 0: the workers' own default.
  std::string state;              // Directory; absolute.
  std::string listen;             // host:port; port 0 picks a free one.
  std::string metrics_listen;     // The same.
  std::string binary_directory;   // Of trainyard-controller, trainyard-worker, trainyard-trainer.
  std::vector<std::string> roots;  // Where paths of specs may lie; absolute.
};

// Not thread-safe; its life is one call of Run() on the main thread.
//
// A child that ends unasked is started again (ranks of a worker go on and are adopted), up to five
// times within a minute; then everything is ended and Run() fails. SIGINT, SIGTERM and SIGHUP end
// it: workers are drained, then the controller stops; at a second signal, or after 35 s, workers
// kill their ranks instead; at a third everything is killed. Nothing that it started stays behind:
// as subreaper it inherits the ranks of a dead worker.
class LocalService {
 public:
  LocalService(LocalServiceOptions options, Output& output);
  ~LocalService();

  // Prints "ready controller=ADDR metrics=URL" once every worker is registered, and returns after a
  // signal. Errors: a port or state directory that is taken; a program that does not start.
  absl::Status Run();

 private:
  struct Child {
    std::string name;  // "controller", "worker-0": also of the log.
    std::vector<std::string> argv;
    pid_t pid = -1;
    int output = -1;
    std::string text;                                    // What it wrote to standard output.
    std::deque<absl::Duration> deaths;                   // Monotonic, as start_at is.
    absl::Duration start_at = absl::InfiniteDuration();  // When to start it again.
  };

  absl::Status CheckPorts() const;
  // Children of an 'up' that was killed end by themselves, workers once they have drained.
  absl::Status AwaitPredecessors();
  absl::Status Prepare();
  absl::Status StartController();
  std::vector<std::string> Secrets() const;
  absl::Status StartWorkers();
  void Stop();

  absl::Status Start(Child& child);
  // Handles signals, output and ends of children until `done`, a stop signal (then `stopping_`) or
  // the deadline.
  absl::Status PumpUntil(const std::function<bool()>& done, absl::Duration patience);
  void ReadSignals(absl::Duration wait);
  void ReadOutput(Child& child);
  void Reap();
  absl::Status RestartDead();
  absl::Status Died(Child& child, int wait_status);
  void Signal(const Child& child, int signal);
  bool AllGone(size_t first) const;  // Children from `first` on.
  void KillOrphans();
  std::string LogPath(const Child& child) const;

  const LocalServiceOptions options_;
  Output& output_;
  std::vector<Child> children_;  // The controller first.
  std::vector<std::pair<size_t, int>>
      ended_;  // Index of a child, its wait status; not handled yet.
  std::string address_, metrics_url_;
  int signals_ = -1;  // signalfd
  int lock_ = -1;
  int stop_signals_ = 0;
  bool serving_ = false;
};

}  // namespace trainyard::cli
