// One rank on this machine, from the order to start it until the controller knows that it is gone.
// The daemon holds a table of these; worker/daemon/rank_directory.h says what each keeps on disk.

#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/clock.h"
#include "worker/channel/server.h"
#include "worker/channel/unsent.h"
#include "worker/daemon/devices.h"
#include "worker/daemon/gpu_telemetry.h"
#include "worker/daemon/liveness.h"
#include "worker/daemon/log_files.h"
#include "worker/daemon/metrics.h"
#include "worker/daemon/outbox.h"
#include "worker/daemon/processes.h"
#include "worker/daemon/rank_directory.h"
#include "worker/daemon/reports.h"
#include "worker/daemon/spool.h"
#include "worker/sandbox/options.h"

namespace trainyard {

// What a rank is started with.
struct RankOrder {
  std::string config;
  std::vector<std::string> roots;        // Of its job.
  std::vector<std::string> directories;  // That the job makes below them where they are missing.
};

struct DaemonOptions {
  std::string state_directory;           // Absolute; its lock is held.
  std::string supervisor;                // Path of trainyard-worker.
  std::string trainer;                   // Path of trainyard-trainer.
  std::vector<std::string> roots;        // Absolute. The first is the trainers' working directory.
  std::string interface;                 // Address or device name for connections between ranks.
  std::vector<std::string> environment;  // Of the trainers: NAME=value.
  std::vector<Device> devices;
  std::optional<SandboxOptions> sandbox = {};  // Absent: ranks may do what the daemon may.
  GpuTelemetry* gpus = nullptr;                // Of the devices that are GPUs; null: there is none.
  uint64_t log_file_bytes = 4 << 20;  // Of a rank's log, at most log_files such files are kept.
  uint32_t log_files = 4;
  uint64_t spool_bytes = 256 << 20;  // Of a rank's steps; checkpoints have no bound.
  channel::Patience patience{};      // With ranks that make no progress.
  mode_t umask = 022;                // The trainers'.
  size_t ended_ranks = 16;  // Directories of ranks that ended and are reported: the newest stay.
};

// Returns how the supervisor in `directory` starts the trainer of a rank on this device. Only the
// sandbox depends on the order. The program, its arguments and its environment are the same for all
// jobs (launch_test).
Launch LaunchOf(const DaemonOptions& options, uint32_t device, const RankDirectory& directory,
                const RankOrder& order);

// Not thread-safe: the daemon's lock guards it, and the thread of its channel takes that lock
// first.
class Rank {
 public:
  enum class Phase {
    kWaiting,    // For its device: a superseded rank is still on it.
    kRunning,    // Its supervisor lives.
    kFinishing,  // All processes are gone; the channel may hold a last message.
    kExited,     // The exit is in the outbox.
    kReported,   // The controller has acknowledged it.
  };
  // What all ranks share; outlives them.
  struct Shared {
    const DaemonOptions& options;
    Outbox& outbox;
    WorkerMetrics& metrics;
    const Clock& clock;
  };

  Rank(Shared shared, RankId id, uint32_t device);

  const RankId& id() const { return id_; }
  uint32_t device() const { return device_; }
  Phase phase() const { return phase_; }
  bool alive() const { return phase_ == Phase::kRunning || phase_ == Phase::kFinishing; }
  RankStatus Status() const;

  // Writes its files and starts its supervisor. A failure ends the rank, with the reason.
  void Launch(const RankOrder& order, channel::ChannelServer::Callbacks callbacks);
  // Takes over what an earlier daemon left in the rank's directory.
  void Adopt(channel::ChannelServer::Callbacks callbacks);

  void Stop(StopMode mode);
  // The daemon ends and takes the rank along, at once: no fault of the rank's, and reported so.
  void KillWithDaemon();
  // Moves on: finds the processes gone or hung, kills what did not go, forwards the log. `elapsed`:
  // since the last call.
  void Poll(bool connected, absl::Duration elapsed);
  // Nothing is left to do here.
  bool done() const { return phase_ == Phase::kReported && log_done_; }
  // Must be destroyed without the daemon's lock: it joins a thread that may wait for it.
  std::unique_ptr<channel::ChannelServer> TakeClosedChannel();
  std::unique_ptr<channel::ChannelServer> TakeChannel() { return std::move(channel_); }

  // From the channel.
  void OnHello() { greeted_ = true; }
  void OnDisconnected() { greeted_ = false; }
  void OnProgress(const channel::Progress& progress) { liveness_.Heard(progress); }
  void OnReady(const channel::Ready& ready);
  void OnStep(channel::Step step);
  void OnCheckpoint(const channel::Checkpoint& checkpoint);
  void OnSet(const channel::Set& set);
  void OnGet(const channel::Get& get);

  // From the controller.
  void Acknowledged(uint64_t sequence);  // Of the outbox, and all before.
  // Hands a value to the trainer if it waits for it.
  void Answer(const std::string& key, const std::string& value);
  // The value that this rank set, or null.
  const std::string* ValueOf(const std::string& key) const;
  // After a reconnect: everything that was as good as the connection.
  void Resend();

 private:
  // The directory and its files, for the trainer to find.
  absl::Status Prepare(const RankOrder& order, const struct Launch& launch);
  // Lets the trainer connect.
  absl::Status Listen(channel::ChannelServer::Callbacks callbacks);
  bool ReplayEarlierDaemon();
  void PollProcess();
  void PollLiveness(absl::Duration elapsed);
  bool MayExit() const;
  bool ToldUnsent();
  void Exited(RankExit exit);  // No process of it is left.
  uint64_t ReportStep(const channel::Step& step);
  uint64_t ReportCheckpoint(const channel::Checkpoint& checkpoint);
  void ForwardLog();

  const Shared shared_;
  const RankId id_;
  const uint32_t device_;
  const RankDirectory directory_;
  Phase phase_ = Phase::kWaiting;
  std::optional<channel::Ready> ready_;  // Once it was.
  bool kill_ordered_ = false;
  Liveness liveness_;
  std::string hung_;  // Why it was ended, if it was for that.
  RankExit exit_;
  uint64_t exit_sequence_ = 0;  // Of its report, once it is in the outbox.

  ProcessIdentity supervisor_;
  bool our_child_ = false;                           // To be reaped by us: not adopted.
  std::optional<absl::Duration> kill_at_;            // Then the supervisor itself is killed.
  absl::Duration finishing_since_;                   // When its processes were found gone.
  absl::Time running_since_ = absl::InfinitePast();  // Of an adopted one, since it was.
  uint64_t xids_of_ = 0;  // The round of telemetry that sees what killed it.

  std::unique_ptr<channel::ChannelServer> channel_;
  bool greeted_ = false;
  std::vector<channel::Set> sets_;
  std::set<std::string> gets_;  // Keys that the trainer waits for.
  Spool steps_;
  Spool checkpoints_;
  Spool rendezvous_;
  std::optional<channel::UnsentReader> unsent_;  // While that is read.

  LogReader log_;
  absl::Duration next_log_;
  bool log_done_ = false;
};

}  // namespace trainyard
