#include "worker/daemon/rank.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/files.h"
#include "common/log.h"
#include "common/roots.h"
#include "common/status_macros.h"
#include "worker/channel/exit_cause.h"
#include "worker/daemon/environment.h"
#include "worker/daemon/rank_config.h"
#include "worker/daemon/supervisor.h"

namespace trainyard {
namespace {

// Longer than kKillGrace. A supervisor that has not ended by then is stuck itself.
constexpr absl::Duration kSupervisorGrace = absl::Seconds(8);
// The longest wait for NVML, which may block.
constexpr absl::Duration kXidGrace = absl::Seconds(1);
// All processes of the rank have ended, so the channel will end. If the daemon stood still before,
// it has much to read first.
constexpr absl::Duration kChannelGrace = absl::Seconds(30);
constexpr absl::Duration kLogInterval = absl::Milliseconds(250);
constexpr size_t kMaxSets = 4096;
constexpr char kEndedWithDaemon[] = "ended_with_daemon";  // Mark in the rank's directory.
constexpr size_t kMaxValueBytes = 64 << 10;

absl::Status WriteText(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return ErrnoStatus(errno != 0 ? errno : EIO, "write", path);
  return absl::OkStatus();
}

// Whether an XID of the rank's GPU may explain this end.
bool MayBeOfTheDevice(ExitCause cause) {
  return cause == ExitCause::kDeviceError || cause == ExitCause::kPeerLost ||
         cause == ExitCause::kSignal || cause == ExitCause::kHung || cause == ExitCause::kOther;
}

uint64_t ReadPosition(const std::string& path, absl::Duration& left) {
  uint64_t position = 0;
  const auto text = ReadWithin([&] { return ReadFile(path, 64); }, left);
  return text.ok() && absl::SimpleAtoi(*text, &position) ? position : 0;
}

}  // namespace

Rank::Rank(Shared shared, RankId id, std::optional<uint32_t> device, StartOrder order)
    : shared_(shared),
      id_(std::move(id)),
      device_(device.value_or(0)),
      device_unknown_(!device),
      order_(std::move(order)),
      directory_(shared.options.state_directory, id_),
      liveness_(shared.options.patience),
      steps_(directory_.path(), "steps", shared.options.spool_bytes),
      checkpoints_(directory_.path(), "checkpoints"),
      rendezvous_(directory_.path(), "rendezvous"),
      supervisor_reads_(shared.options.read_patience),
      exit_reads_(shared.options.read_patience),
      unsent_reads_(shared.options.read_patience),
      log_reads_(shared.options.read_patience),
      log_(directory_.path(), 0) {}

RankStatus Rank::Status() const {
  if (phase_ == Phase::kExited || phase_ == Phase::kReported) {
    return {id_, exit_, device_, RankState::kExited};
  }
  return {id_, {}, device_, ready_ ? RankState::kReady : RankState::kStarting, ready_};
}

absl::Status Rank::Prepare(const struct Launch& launch) {
  const std::string trainers = directory_.File("trainer");
  ASSIGN_OR_RETURN(const std::string text,
                   TrainerConfigText(shared_.options, order_, {id_.rank, device_}, directory_));
  RETURN_IF_ERROR(MakeDirectories(trainers));
  const std::string config = directory_.File("config.json");
  RETURN_IF_ERROR(WriteText(config, text));
  RETURN_IF_ERROR(ReserveRoomForReport(directory_.File("exit_report.json")));
  const std::optional<Sandbox>& sandbox = launch.sandbox;
  // The trainer's user may pass through the directory. Files that the trainer does not read are
  // readable by the daemon alone.
  const bool other_user = sandbox && sandbox->user;
  if (::chmod(directory_.path().c_str(), other_user ? 0711 : 0700) != 0) {
    return ErrnoStatus(errno, "set the mode of", directory_.path());
  }
  for (const std::string& path : {trainers, config}) {
    if (other_user && ::chown(path.c_str(), sandbox->user->uid, sandbox->user->gid) != 0) {
      return ErrnoStatus(errno, "give the rank's user", path);
    }
  }
  return WriteLaunch(directory_, launch);
}

absl::Status Rank::Listen(channel::ChannelServer::Callbacks callbacks) {
  const std::string socket = directory_.File("socket");
  // The supervisor writes its identity before it starts the trainer. Later daemons read it, too.
  const auto of_this_rank = [told = directory_.File("supervisor.json")](pid_t process) {
    const auto supervisor = ReadSupervisor(told);
    return supervisor.ok() && DescendsFrom(process, *supervisor);
  };
  ASSIGN_OR_RETURN(channel_, channel::ChannelServer::Create({.path = socket,
                                                             .job_id = id_.job_id,
                                                             .epoch = id_.epoch,
                                                             .rank = id_.rank,
                                                             .admits = of_this_rank},
                                                            std::move(callbacks)));
  const auto& sandbox = shared_.options.sandbox;
  if (!sandbox || !sandbox->user) return absl::OkStatus();
  if (::lchown(socket.c_str(), sandbox->user->uid, sandbox->user->gid) == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, "give the rank's user", socket);
}

void Rank::Launch(channel::ChannelServer::Callbacks callbacks) {
  const DaemonOptions& options = shared_.options;
  const struct Launch launch = LaunchOf(options, device_, directory_, order_);
  const auto start = [&]() -> absl::Status {
    RETURN_IF_ERROR(Prepare(launch));
    RETURN_IF_ERROR(Listen(std::move(callbacks)));
    ASSIGN_OR_RETURN(
        const pid_t pid,
        SpawnSession({.arguments = {options.supervisor, "--supervise", directory_.path()},
                      .environment = launch.environment,
                      .output = directory_.File("supervisor.log")}));
    supervisor_ = {pid, 0};
    our_child_ = true;
    // The supervisor stays in /proc until it is reaped, which happens only here.
    if (const auto process = ReadProcess(pid)) supervisor_ = process->identity;
    return absl::OkStatus();
  };
  if (const absl::Status status = start(); !status.ok()) {
    Exited({.cause = CauseOfFailedStart(status),
            .message = absl::StrCat("could not be started: ", status.message())});
    return;
  }
  phase_ = Phase::kRunning;
  running_since_ = RealClock().Now();
  shared_.metrics.RankStarted(id_, shared_.options.devices[device_]);
  shared_.outbox.Add(Status());
  LogInfo("rank_started", {{"rank", id_.Name()}, {"device", device_}, {"pid", supervisor_.pid}});
}

void Rank::ReadReady(absl::Duration& left) {
  const auto said = ReadWithin([&] { return ReadFile(directory_.File("ready")); }, left);
  channel::KeptLines lines(/*earlier_numbered=*/false);
  const channel::LostLines lost =
      lines.Read(said.value_or(""), [&](const channel::Message& message) {
        if (const auto* ready = std::get_if<channel::Ready>(&message)) ready_ = *ready;
      });
  if (lost.damaged > 0) LogError("ready_damaged", {{"rank", id_.Name()}});
  const bool counted = std::exchange(ready_unread_, MayPass(said.status()));
  CountLost({lost, ready_unread_ && !counted ? 1u : 0u});
  // The report may not be acknowledged, and a registration says only that the rank exists.
  if (ready_) shared_.outbox.Add(Status());
}

void Rank::ReadSpools(absl::Duration& left, bool again) {
  const auto set = [&](channel::Message message) {
    if (auto* value = std::get_if<channel::Set>(&message)) {
      shared_.outbox.Add(RendezvousSet{{id_.job_id, id_.epoch, value->key, value->value}});
      sets_.push_back(std::move(*value));
    }
    return Spool::kNeverAcknowledged;
  };
  const auto step = [&](const channel::Message& message) {
    const auto* taken = std::get_if<channel::Step>(&message);
    return taken == nullptr ? 0 : ReportStep(*taken);
  };
  const auto checkpoint = [&](const channel::Message& message) {
    const auto* taken = std::get_if<channel::Checkpoint>(&message);
    return taken == nullptr ? 0 : ReportCheckpoint(*taken);
  };
  const auto recover = [&](Spool& spool, const auto& adopt) {
    if (again && !spool.unread()) return;
    Spool::Lost lost = spool.Recover(adopt, left);
    if (again) lost.unreadable_files = 0;  // They have been counted.
    CountLost(lost);
  };
  recover(rendezvous_, set);
  recover(steps_, step);  // A checkpoint is never reported before its step.
  recover(checkpoints_, checkpoint);
}

// Reads again, now and then, what could not be read, and reports it.
void Rank::PollUnread() {
  if (!unread() || shared_.clock.Monotonic() < next_unread_) return;
  absl::Duration none;  // The daemon does not wait here.
  if (ready_unread_) ReadReady(none);
  ReadSpools(none, /*again=*/true);
  const bool ended = phase_ >= Phase::kExited;
  if (exit_unread_ && ended) {
    const auto report = ReadExitReport(directory_.File("exit_report.json"));
    exit_unread_ = MayPass(report.status());
    if (report.ok()) exit_ = *report;
  }
  if (unsent_unread_ && ended && !ToldUnsent()) return;  // The next call goes on.
  next_unread_ = shared_.clock.Monotonic() + shared_.options.read_patience;
  // Told again, behind the rest: once this is acknowledged, everything is.
  if (ended && !unread()) TellExit();
}

void Rank::CountLost(const Spool::Lost& lost) {
  shared_.metrics.ReportsLost("damaged_line", lost.damaged);
  shared_.metrics.ReportsLost("missing_line", lost.missing);
  shared_.metrics.ReportsLost("unreadable_file", lost.unreadable_files);
}

void Rank::Adopt(channel::ChannelServer::Callbacks callbacks, absl::Duration& left) {
  phase_ = Phase::kRunning;
  running_since_ = RealClock().Now();
  callbacks_ = std::move(callbacks);
  log_.Seek(ReadPosition(directory_.File("log_position"), left));
  ReadReady(left);
  ReadSpools(left, /*again=*/false);
  next_unread_ = shared_.clock.Monotonic() + shared_.options.read_patience;
  const auto supervisor = ReadWithin([&] { return FindSupervisor(directory_); }, left);
  supervisor_unread_ = MayPass(supervisor.status());
  if (!supervisor_unread_) FoundSupervisor(supervisor);
}

void Rank::EndOnUnknownDevice(const absl::Status& why) {
  const std::string report = directory_.File("exit_report.json");
  if (Exists(report) || KillMarked(RankDirectory::Marker(directory_.path())) == 0) return;
  LogError("rank_device_unknown", {{"rank", id_.Name()},
                                   {"error", why.message()},
                                   {"effect", "the rank is ended, and its job starts again"}});
  const RankExit exit = {.cause = ExitCause::kOther,
                         .message = absl::StrCat("ended, because nobody knows on which device it "
                                                 "ran: ",
                                                 why.message())};
  if (const absl::Status status = WriteExitReport(report, exit); !status.ok()) {
    LogError("exit_report_failed", {{"rank", id_.Name()}, {"error", status.message()}});
  }
}

void Rank::FoundSupervisor(const absl::StatusOr<ProcessIdentity>& supervisor) {
  if (supervisor.ok()) supervisor_ = *supervisor;
  const absl::StatusOr<bool> runs = supervisor.ok() ? IsRunning(supervisor_) : false;
  supervisor_unread_ = !runs.ok();  // The next poll looks again.
  if (!runs.ok()) return;
  if (!*runs) {  // PollProcess handles its end.
    LogInfo("rank_ended_meanwhile", {{"rank", id_.Name()}});
    return;
  }
  if (const absl::Status listening = Listen(std::move(callbacks_)); !listening.ok()) {
    LogError("channel_failed", {{"rank", id_.Name()}, {"error", listening.message()}});
  }
  // An earlier daemon may have had more devices.
  const std::vector<Device>& devices = shared_.options.devices;
  shared_.metrics.RankStarted(
      id_, device_ < devices.size() ? devices[device_] : Device{.index = device_});
  LogInfo("rank_adopted", {{"rank", id_.Name()}, {"pid", supervisor_.pid}});
}

void Rank::Stop(StopMode mode) {
  if (phase_ == Phase::kWaiting) {
    Exited({.cause = ExitCause::kStopped, .message = "stopped before it was started"});
  }
  if (phase_ != Phase::kRunning) return;
  if (mode == StopMode::kCheckpoint) {
    if (channel_ != nullptr) channel_->SendStop();
    return;
  }
  if (std::exchange(kill_ordered_, true)) return;
  kill_at_ = shared_.clock.Monotonic() + kSupervisorGrace;
  if (IsRunning(supervisor_).value_or(false)) ::kill(supervisor_.pid, SIGTERM);
}

void Rank::KillWithDaemon() {
  if (phase_ == Phase::kRunning) {
    directory_.Mark(kEndedWithDaemon);  // A later daemon reads this, too.
    if (IsRunning(supervisor_).value_or(false)) ::kill(supervisor_.pid, SIGKILL);
  } else {
    Stop(StopMode::kKill);
  }
}

void Rank::Poll(bool connected, absl::Duration elapsed) {
  if (phase_ == Phase::kRunning) PollLiveness(elapsed);
  if (phase_ == Phase::kRunning) PollProcess();
  if (phase_ == Phase::kFinishing && MayExit() && ToldUnsent()) {
    if (connected) ForwardLog();  // The log is complete before the exit.
    const std::string xid =
        xids_of_ > 0 ? shared_.options.gpus->XidSince(device_, running_since_) : "";
    if (!xid.empty()) absl::StrAppend(&exit_.message, "; ", xid);
    Exited(std::move(exit_));
  }
  PollUnread();
  if (connected && !log_done_ && phase_ != Phase::kWaiting &&
      shared_.clock.Monotonic() >= next_log_) {
    next_log_ = shared_.clock.Monotonic() + kLogInterval;
    ForwardLog();
  }
}

bool Rank::MayExit() const {
  const absl::Duration since = shared_.clock.Monotonic() - finishing_since_;
  const bool xids_read =
      xids_of_ == 0 || since >= kXidGrace || shared_.options.gpus->HasRead(xids_of_);
  return xids_read && (!greeted_ || since >= kChannelGrace);
}

// Reports a part of what the ended trainer left, so that the other ranks do not wait. Returns
// whether everything has been reported. Some of it may be reported twice; receivers go by its step.
bool Rank::ToldUnsent() {
  const std::string unsent = directory_.TrainersFile(channel::kUnsentName);
  if (!unsent_) unsent_.emplace(unsent);
  const auto more = unsent_->Next([&](channel::Message message) {
    if (const auto* ready = std::get_if<channel::Ready>(&message)) OnReady(*ready);
    if (auto* step = std::get_if<channel::Step>(&message)) OnStep(std::move(*step));
    if (const auto* saved = std::get_if<channel::Checkpoint>(&message)) OnCheckpoint(*saved);
  });
  if (absl::IsNotFound(more.status())) {
    unsent_unread_ = false;
    return true;
  }
  if (unsent_reads_.TryAgain(more.status(), shared_.clock.Monotonic())) return false;
  if (more.ok() && *more) return false;
  const bool counted = std::exchange(unsent_unread_, MayPass(more.status()));
  if (!more.ok()) {
    CountLost({unsent_unread_ ? channel::LostLines{} : unsent_->lost(),
               unsent_unread_ && !counted ? 1u : 0u});
    LogError("unsent_not_read", {{"error", more.status().message()}, {"effect", "it stays"}});
    return true;
  }
  // Now the spools have it, too.
  if (const absl::Status synced = directory_.SyncReports(); !synced.ok()) {
    LogError("reports_not_synced", {{"rank", id_.Name()}, {"error", synced.message()}});
    unsent_unread_ = true;  // The file stays until the reports are safe.
    return true;
  }
  CountLost({unsent_->lost(), 0});
  ::unlink(unsent.c_str());
  return true;
}

void Rank::PollLiveness(absl::Duration elapsed) {
  // Without a channel no heartbeat arrives, and the trainer stops by itself.
  if (kill_ordered_ || channel_ == nullptr) return;
  const std::optional<std::string> reason = liveness_.Poll(elapsed);
  if (!reason) return;
  hung_ = *reason;
  LogWarning("rank_hung", {{"rank", id_.Name()}, {"reason", hung_}});
  Stop(StopMode::kKill);
}

void Rank::PollProcess() {
  if (supervisor_unread_) {  // The rank must not be taken for one that has ended.
    const auto supervisor = FindSupervisor(directory_);
    if (supervisor_reads_.TryAgain(supervisor.status(), shared_.clock.Monotonic())) return;
    FoundSupervisor(supervisor);
    if (supervisor_unread_) return;
  }
  if (our_child_ && ::waitpid(supervisor_.pid, nullptr, WNOHANG) == supervisor_.pid) {
    our_child_ = false;
  }
  const std::string marker = RankDirectory::Marker(directory_.path());
  if (IsRunning(supervisor_).value_or(true)) {  // One that is taken for ended is killed.
    if (!kill_at_ || shared_.clock.Monotonic() < *kill_at_) return;
    LogWarning("supervisor_stuck", {{"rank", id_.Name()}, {"pid", supervisor_.pid}});
    KillMarked(marker);
    return;
  }
  const auto report = ReadExitReport(directory_.File("exit_report.json"));
  if (exit_reads_.TryAgain(report.status(), shared_.clock.Monotonic())) return;
  exit_unread_ = MayPass(report.status());
  if (report.ok()) {
    exit_ = *report;
  } else {
    // The supervisor was killed. Its trainer dies with it. Processes that the trainer had started
    // must also end before this counts as an exit.
    if (KillMarked(marker) > 0) return;
    const auto said = ReadTrainersReport(directory_);
    exit_lost_ = said.ok() && !exit_unread_;
    exit_ = {.cause = ExitCause::kSignal,
             .signal = SIGKILL,
             .message = absl::StrCat("its supervisor ended without a report: ",
                                     report.status().message())};
    if (said.ok()) exit_ = *said;
  }
  // The kill was not the cause of the end.
  if (!hung_.empty() && exit_.cause != ExitCause::kCompleted) {
    exit_.cause = ExitCause::kHung;
    exit_.message = hung_;
  } else if (exit_.cause == ExitCause::kSignal && directory_.Has(kEndedWithDaemon)) {
    exit_.cause = ExitCause::kStopped;
    exit_.message = "killed without a checkpoint";
  }
  const bool by_order = kill_ordered_ && hung_.empty();
  if (shared_.options.gpus != nullptr && !by_order && MayBeOfTheDevice(exit_.cause)) {
    xids_of_ = shared_.options.gpus->ReadSoon();
  }
  phase_ = Phase::kFinishing;
  finishing_since_ = shared_.clock.Monotonic();
}

void Rank::Exited(RankExit exit) {
  exit_ = std::move(exit);
  // Written so that a later daemon can report it, too. The rank may never have had a supervisor, or
  // the supervisor may not know why it was killed.
  const bool untold = exit_lost_ || !hung_.empty() || xids_of_ > 0 ||
                      directory_.Has(kEndedWithDaemon) || !directory_.Has("exit_report.json");
  if (untold && MakeDirectories(directory_.path()).ok()) {
    exit_unread_ = false;  // This daemon knows better.
    if (const absl::Status status = WriteExitReport(directory_.File("exit_report.json"), exit_);
        !status.ok()) {
      LogError("exit_report_failed", {{"rank", id_.Name()}, {"error", status.message()}});
    }
  }
  TellExit();
  shared_.metrics.RankEnded(id_, shared_.clock.Monotonic());
  LogInfo("rank_exited", {{"rank", id_.Name()},
                          {"cause", Name(exit_.cause)},
                          {"code", exit_.exit_code},
                          {"signal", exit_.signal},
                          {"message", exit_.message}});
}

std::unique_ptr<channel::ChannelServer> Rank::TakeClosedChannel() {
  return phase_ == Phase::kExited || phase_ == Phase::kReported ? TakeChannel() : nullptr;
}

void Rank::OnReady(const channel::Ready& ready) {
  ready_ = ready;
  ready_unread_ = false;
  if (const absl::Status status =
          WriteText(directory_.File("ready"), channel::WithChecksum(channel::Encode({ready})));
      !status.ok()) {
    LogWarning("ready_not_kept", {{"rank", id_.Name()}, {"error", status.message()}});
  }
  if (alive()) shared_.outbox.Add(Status());
}

void Rank::OnStep(channel::Step step) {
  const bool earlier = step.epoch.has_value();  // The rank has read it and not run it.
  if (shared_.options.gpus != nullptr && !earlier) {
    step.gpu = shared_.options.gpus->Latest(device_).value_or(GpuReading());
  }
  shared_.metrics.SpoolDropped(steps_.Append(step, ReportStep(step)));
  if (!earlier) shared_.metrics.StepFinished(id_, step);
}

void Rank::OnCheckpoint(const channel::Checkpoint& checkpoint) {
  checkpoints_.Append(checkpoint, ReportCheckpoint(checkpoint));
}

uint64_t Rank::ReportStep(const channel::Step& step) {
  return shared_.outbox.Add(StepReport{id_, step});
}

uint64_t Rank::ReportCheckpoint(const channel::Checkpoint& checkpoint) {
  return shared_.outbox.Add(CheckpointReport{id_, checkpoint, shared_.clock.Now()});
}

void Rank::OnSet(const channel::Set& set) {
  if (sets_.size() >= kMaxSets || set.value.size() > kMaxValueBytes) {
    LogWarning("rendezvous_refused", {{"rank", id_.Name()},
                                      {"key", set.key},
                                      {"bytes", set.value.size()},
                                      {"most", kMaxValueBytes}});
    return;
  }
  rendezvous_.Append(set, Spool::kNeverAcknowledged);
  sets_.push_back(set);
  shared_.outbox.Add(RendezvousSet{{id_.job_id, id_.epoch, set.key, set.value}});
}

void Rank::OnGet(const channel::Get& get) {
  gets_.insert(get.key);
  shared_.outbox.Add(RendezvousGet{{id_.job_id, id_.epoch, get.key}});
}

void Rank::Acknowledged(uint64_t sequence) {
  steps_.Acknowledge(sequence);
  checkpoints_.Acknowledge(sequence);
  if (phase_ != Phase::kExited || exit_sequence_ > sequence) return;
  // A later daemon ignores, and may remove, a directory with this mark.
  if (!unread()) directory_.Mark("reported");
  phase_ = Phase::kReported;
}

void Rank::Answer(const std::string& key, const std::string& value) {
  if (gets_.erase(key) > 0 && channel_ != nullptr) channel_->SendValue(key, value);
}

const std::string* Rank::ValueOf(const std::string& key) const {
  const auto it = std::find_if(sets_.begin(), sets_.end(),
                               [&](const channel::Set& set) { return set.key == key; });
  return it == sets_.end() ? nullptr : &it->value;
}

void Rank::Resend() {
  if (!alive()) return;
  for (const channel::Set& set : sets_) {
    shared_.outbox.Add(RendezvousSet{{id_.job_id, id_.epoch, set.key, set.value}});
  }
  for (const std::string& key : gets_) {
    shared_.outbox.Add(RendezvousGet{{id_.job_id, id_.epoch, key}});
  }
}

void Rank::ForwardLog() {
  const bool ended = phase_ >= Phase::kFinishing;
  auto read = log_.Read({.with_partial_line = ended});
  if (log_reads_.TryAgain(read.status(), shared_.clock.Monotonic())) return;
  if (!read.ok()) {
    log_done_ = ended;
    return;
  }
  LogReport report{.job_id = id_.job_id, .lines = {}};
  const auto add = [&, now = shared_.clock.Now()](std::string line) {
    report.lines.push_back({now, id_.epoch, id_.rank, std::move(line)});
  };
  if (read->skipped_bytes > 0) {
    add(absl::StrCat("(", read->skipped_bytes, " bytes of output were not forwarded)"));
  }
  for (std::string& line : read->lines) add(std::move(line));
  if (report.lines.empty()) {
    log_done_ = ended;
    return;
  }
  shared_.outbox.Add(std::move(report));
  if (!WriteText(directory_.File("log_position"), absl::StrCat(log_.position())).ok()) {
    LogWarning("log_position_failed", {{"rank", id_.Name()}});
  }
}

}  // namespace trainyard
