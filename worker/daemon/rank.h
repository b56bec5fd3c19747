// One rank on this machine, from the order to start it until the controller knows that it has
// ended. The daemon holds a table of these. worker/daemon/rank_directory.h describes the files of
// each.

#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/patient_read.h"
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

struct DaemonOptions {
  std::string state_directory;           // Absolute. The daemon holds its lock.
  std::string supervisor;                // Path of trainyard-worker.
  std::string trainer;                   // Path of trainyard-trainer.
  std::vector<std::string> roots;        // Absolute. The first is the trainers' working directory.
  std::string interface;                 // Address or device name for connections between ranks.
  std::vector<std::string> environment;  // For trainers: NAME=value.
  std::vector<Device> devices;
  std::optional<SandboxOptions> sandbox = {};  // Absent: ranks may do what the daemon may.
  GpuTelemetry* gpus = nullptr;  // Telemetry of the devices that are GPUs; null: none.
  // The size of one file of a rank's log. At most log_files such files are kept.
  uint64_t log_file_bytes = Launch().log_file_bytes;
  uint32_t log_files = Launch().log_files;
  uint64_t spool_bytes = 256 << 20;  // Limit for a rank's steps. Checkpoints have none.
  channel::Patience patience{};      // How long ranks may make no progress.
  mode_t umask = Launch().umask;     // For trainers.
  // How many directories of ended and reported ranks are kept; the newest stay.
  size_t ended_ranks = 16;
  // How long a file of an earlier daemon, or of a rank, is waited for that cannot be read.
  absl::Duration read_patience = kReadPatience;
};

// Returns how the supervisor in `directory` starts the trainer of a rank on this device. Only the
// sandbox depends on the order. The program, its arguments and its environment are the same for all
// jobs (launch_test).
Launch LaunchOf(const DaemonOptions& options, uint32_t device, const RankDirectory& directory,
                const StartOrder& order);

// Not thread-safe: the daemon's lock guards it. The thread of the rank's channel takes this lock
// first.
class Rank {
 public:
  enum class Phase {
    kWaiting,    // A superseded rank still uses its device.
    kRunning,    // Its supervisor is alive.
    kFinishing,  // All processes have ended; the channel may hold a last message.
    kExited,     // The exit is in the outbox.
    kReported,   // The controller has acknowledged the exit. Files may still be unread.
  };
  // Shared by all ranks; must outlive them.
  struct Shared {
    const DaemonOptions& options;
    Outbox& outbox;
    WorkerMetrics& metrics;
    const Clock& clock;
  };

  // No device: an earlier daemon's rank, and nobody knows on which device it runs. Such a rank has
  // no order either. The roots of an order are those that the daemon and the job share.
  Rank(Shared shared, RankId id, std::optional<uint32_t> device, StartOrder order = {});

  const RankId& id() const { return id_; }
  uint32_t device() const { return device_; }
  bool MayHold(uint32_t device) const { return device_unknown_ || device_ == device; }
  Phase phase() const { return phase_; }
  bool alive() const { return phase_ == Phase::kRunning || phase_ == Phase::kFinishing; }
  RankStatus Status() const;

  // Writes the rank's files and starts its supervisor. If that fails, the rank ends with the
  // reason.
  void Launch(channel::ChannelServer::Callbacks callbacks);
  // Takes over what an earlier daemon left in the rank's directory. Waits within `left` for files
  // that cannot be read.
  void Adopt(channel::ChannelServer::Callbacks callbacks, absl::Duration& left);
  // Ends an adopted rank whose device nobody knows, if a process of it runs: another rank may be
  // started on the same device. Kills it, and writes its exit report.
  void EndOnUnknownDevice(const absl::Status& why);

  void Stop(StopMode mode);
  // Kills the rank at once because the daemon ends. The exit is reported as no fault of the rank.
  void KillWithDaemon();
  // Does the regular work: notices that the processes have ended or hang, kills those that did not
  // stop, and forwards the log. `elapsed`: the time since the last call.
  void Poll(bool connected, absl::Duration elapsed);
  // Whether nothing is left to do for this rank.
  bool done() const { return phase_ == Phase::kReported && log_done_ && !unread(); }
  // Returns the channel of an ended rank. Destroy it without the daemon's lock, because it joins a
  // thread that may wait for the lock.
  std::unique_ptr<channel::ChannelServer> TakeClosedChannel();
  std::unique_ptr<channel::ChannelServer> TakeChannel() { return std::move(channel_); }

  // Called by the channel.
  void OnHello() { greeted_ = true; }
  void OnDisconnected() { greeted_ = false; }
  void OnProgress(const channel::Progress& progress) { liveness_.Heard(progress); }
  void OnReady(const channel::Ready& ready);
  void OnStep(channel::Step step);
  void OnCheckpoint(const channel::Checkpoint& checkpoint);
  void OnSet(const channel::Set& set);
  void OnGet(const channel::Get& get);

  // Called for the controller's messages.
  void Acknowledged(uint64_t sequence);  // Of the outbox; all earlier ones are acknowledged, too.
  // Gives a value to the trainer if the trainer waits for it.
  void Answer(const std::string& key, const std::string& value);
  // The value that this rank set, or null.
  const std::string* ValueOf(const std::string& key) const;
  // Repeats, after a reconnect, the notices that were lost with the connection.
  void Resend();

 private:
  // Makes the directory and the files that the trainer reads.
  absl::Status Prepare(const struct Launch& launch);
  // Begins to accept the trainer's connection.
  absl::Status Listen(channel::ChannelServer::Callbacks callbacks);
  void FoundSupervisor(const absl::StatusOr<ProcessIdentity>& supervisor);
  void ReadReady(absl::Duration& left);
  // `again`: reads only what could not be read before.
  void ReadSpools(absl::Duration& left, bool again);
  bool unread() const {
    return ready_unread_ || exit_unread_ || unsent_unread_ || rendezvous_.unread() ||
           steps_.unread() || checkpoints_.unread();
  }
  void PollUnread();
  void PollProcess();
  void PollLiveness(absl::Duration elapsed);
  bool MayExit() const;
  bool ToldUnsent();
  void Exited(RankExit exit);  // No process of the rank is left.
  void TellExit() {
    phase_ = Phase::kExited;
    exit_sequence_ = shared_.outbox.Add(Status());
  }
  uint64_t ReportStep(const channel::Step& step);
  uint64_t ReportCheckpoint(const channel::Checkpoint& checkpoint);
  void CountLost(const Spool::Lost& lost);
  void ForwardLog();

  const Shared shared_;
  const RankId id_;
  const uint32_t device_;
  const bool device_unknown_;
  const StartOrder order_;
  bool exit_lost_ = false;  // exit_report.json is, and the trainer's own report is there.
  const RankDirectory directory_;
  Phase phase_ = Phase::kWaiting;
  std::optional<channel::Ready> ready_;  // Absent: not ready yet.
  bool kill_ordered_ = false;
  Liveness liveness_;
  std::string hung_;  // Why the rank was ended, if it hung.
  RankExit exit_;
  uint64_t exit_sequence_ = 0;  // Of the exit report in the outbox.

  ProcessIdentity supervisor_;
  bool supervisor_unread_ = false;  // So nobody knows whether the rank runs.
  channel::ChannelServer::Callbacks
      callbacks_;                          // Until the supervisor of an adopted rank is known.
  bool our_child_ = false;                 // This daemon must reap it; false if adopted.
  std::optional<absl::Duration> kill_at_;  // When to kill the supervisor, too.
  absl::Duration finishing_since_;         // When the processes were found to have ended.
  absl::Time running_since_ = absl::InfinitePast();  // When the rank was started or adopted.
  // The round of GPU telemetry that sees why the rank died.
  uint64_t xids_of_ = 0;

  std::unique_ptr<channel::ChannelServer> channel_;
  bool greeted_ = false;
  std::vector<channel::Set> sets_;
  std::set<std::string> gets_;  // Keys that the trainer waits for.
  Spool steps_;
  Spool checkpoints_;
  Spool rendezvous_;
  std::optional<channel::UnsentReader> unsent_;  // While it is being read.
  ReadPatience supervisor_reads_, exit_reads_, unsent_reads_, log_reads_;
  // Files that could not be read within the patience. PollUnread reads them again.
  bool ready_unread_ = false, exit_unread_ = false, unsent_unread_ = false;
  absl::Duration next_unread_;

  LogReader log_;
  absl::Duration next_log_;
  bool log_done_ = false;
};

}  // namespace trainyard
