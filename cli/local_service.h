// A controller and its workers on this machine, as children of this process, for `trainyard up`.

#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/output.h"
#include "common/file_descriptor.h"

namespace trainyard::cli {

struct LocalServiceOptions {
  int workers = 1;
  // CPU ranks of each worker. 0: one each, or this machine's GPUs for the only worker.
  int devices_per_worker = 0;
  uint64_t patience_seconds = 0;  // The workers' --patience; 0: their default.
  std::string state;              // Directory; absolute.
  std::string listen;             // host:port; port 0 picks a free one.
  std::string metrics_listen;     // Likewise.
  // The directory of trainyard-controller, trainyard-worker and trainyard-trainer.
  std::string binary_directory;
  std::vector<std::string> roots;  // Where paths of specs may lie; absolute.
};

// Not thread-safe. Run() is called once, on the main thread.
//
// A child that ends by itself is started again, up to five times within a minute. (The ranks of a
// worker go on and are adopted.) After that everything is ended and Run() fails. SIGINT, SIGTERM
// and SIGHUP end the service: workers drain, then the controller stops. At a second signal, or
// after 20 s, workers kill their ranks instead, and 5 s later workers that still run are killed. At
// a third signal everything is killed. No process stays behind: as a subreaper, this process
// inherits the ranks of a dead worker. Children that were stopped (SIGSTOP) are continued to end.
class LocalService {
 public:
  LocalService(LocalServiceOptions options, Output& output);

  // Prints "ready controller=ADDR metrics=URL" once every worker is registered, and returns after a
  // signal. Errors: a port or the state directory is taken, or a program does not start.
  absl::Status Run();

 private:
  struct Child {
    std::string name;  // "controller" or "worker-0"; also names the log.
    std::vector<std::string> argv;
    pid_t pid = -1;
    FileDescriptor output;
    std::string text;                                    // Its standard output so far.
    std::deque<absl::Duration> deaths;                   // When it died; monotonic, like start_at.
    absl::Duration start_at = absl::InfiniteDuration();  // When to start it again.
  };

  absl::Status CheckPorts() const;
  // Waits for the children of an 'up' that was killed. They end by themselves, workers after
  // draining.
  absl::Status AwaitPredecessors();
  absl::Status Prepare();
  absl::Status StartController();
  std::vector<std::string> Secrets() const;
  absl::Status StartWorkers();
  void Stop();

  absl::Status Start(Child& child);
  // Handles signals, output and the ends of children until `done` returns true, a stop signal comes
  // (then `stopping_` is set) or the deadline has passed.
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
  std::vector<Child> children_;  // The controller is first.
  // Children that have ended and are not handled yet: index and wait status.
  std::vector<std::pair<size_t, int>> ended_;
  std::string address_, metrics_url_;
  FileDescriptor signals_;  // signalfd
  FileDescriptor lock_;
  int stop_signals_ = 0;
  bool serving_ = false;
};

}  // namespace trainyard::cli
