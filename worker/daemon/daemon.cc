#include "worker/daemon/daemon.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/files.h"
#include "common/log.h"
#include "common/patient_read.h"
#include "common/roots.h"
#include "common/status_macros.h"
#include "worker/daemon/rank_config.h"

namespace trainyard {
namespace {

// The longest time until the end of a process is noticed.
constexpr absl::Duration kPollInterval = absl::Milliseconds(50);

}  // namespace

Daemon::Daemon(DaemonOptions options, WorkerMetrics& metrics, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      metrics_(metrics),
      last_poll_(clock.Monotonic()) {}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Create(DaemonOptions options,
                                                       WorkerMetrics& metrics, const Clock& clock) {
  CHECK(!options.roots.empty() && !options.devices.empty());
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(options), metrics, clock));
  RETURN_IF_ERROR(daemon->AdoptAll());
  daemon->thread_ = std::thread([d = daemon.get()] { d->Run(); });
  return daemon;
}

Daemon::~Daemon() {
  ChannelList channels;
  {
    const MutexLock lock(mutex_);
    closing_ = true;
    for (auto& [id, rank] : ranks_) channels.push_back(rank.TakeChannel());
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
  channels.clear();  // Without the lock, and before the table that their callbacks use.
}

absl::Status Daemon::AdoptAll() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   ListDirectory(options_.state_directory + "/ranks"));
  std::vector<RankId> ids;
  for (const std::string& name : names) {
    const auto id = RankDirectory::ParseName(name);
    if (id.ok() && !RankDirectory(options_.state_directory, *id).Has("reported")) {
      ids.push_back(*id);
    }
  }
  // All trainers wait, so each rank has its share, which no other rank's bad disk uses up.
  const auto ended = [&](const RankId& id) {
    return RankDirectory(options_.state_directory, id).Has("exit_report.json");
  };
  const int64_t living = int64_t(ids.size()) - std::count_if(ids.begin(), ids.end(), ended);
  const MutexLock lock(mutex_);
  for (const RankId& id : ids) {
    const RankDirectory directory(options_.state_directory, id);
    absl::Duration left = options_.read_patience / (ended(id) ? int64_t(ids.size()) : living);
    const auto read = ReadWithin([&] { return ReadDevice(directory); }, left);
    const std::optional<uint32_t> device = read.ok() ? std::optional(*read) : std::nullopt;
    const auto [it, added] =
        ranks_.try_emplace(id, Rank::Shared{options_, outbox_, metrics_, clock_}, id, device);
    it->second.Adopt(CallbacksFor(id), left);
    if (!read.ok()) it->second.EndOnUnknownDevice(read.status());
  }
  return absl::OkStatus();
}

void Daemon::Run() {
  for (;;) {
    ChannelList closed;
    {
      MutexLock lock(mutex_);
      if (closing_) return;
      Poll(closed);
    }
    closed.clear();  // Without the lock.
    MutexLock lock(mutex_);
    const absl::Duration next = RealClock().Monotonic() + kPollInterval;
    while (!closing_ && wake_.WaitUntil(mutex_, next)) continue;
  }
}

void Daemon::Poll(ChannelList& closed) {
  const absl::Duration now = clock_.Monotonic();
  const absl::Duration elapsed = now - std::exchange(last_poll_, now);
  for (auto it = ranks_.begin(); it != ranks_.end();) {
    Rank& rank = it->second;
    rank.Poll(connected_, elapsed);
    if (auto channel = rank.TakeClosedChannel()) closed.push_back(std::move(channel));
    const bool done = rank.done();
    prune_ |= done;
    it = done ? ranks_.erase(it) : std::next(it);
  }
  LaunchWaiting();
  metrics_.OutboxDropped(outbox_.dropped());
  metrics_.Expire(now);
  if (std::exchange(prune_, false)) PruneDirectories();
}

void Daemon::PruneDirectories() {
  std::vector<std::pair<int64_t, std::string>> ended;  // With the times of their reports.
  const auto names = ListDirectory(options_.state_directory + "/ranks");
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const auto id = RankDirectory::ParseName(name);
    if (!id.ok() || ranks_.contains(*id)) continue;
    const RankDirectory directory(options_.state_directory, *id);
    struct stat stat = {};
    if (::stat(directory.File("reported").c_str(), &stat) != 0) continue;
    ended.emplace_back(stat.st_mtime, directory.path());
  }
  std::sort(ended.begin(), ended.end());
  for (size_t i = 0; i + options_.ended_ranks < ended.size(); ++i) {
    if (const absl::Status status = RemoveTree(ended[i].second); !status.ok()) {
      LogWarning("rank_directory_stays", {{"error", status.message()}});
    }
  }
}

absl::StatusOr<std::vector<std::string>> Daemon::RootsOf(const StartOrder& order) const {
  if (order.roots.empty()) return options_.roots;
  std::vector<std::string> common = CommonRoots(order.roots, options_.roots);
  // An empty list would mean that paths may lie anywhere.
  if (!common.empty()) return common;
  return absl::PermissionDeniedError(
      absl::StrCat("the roots of the job's namespace, ", absl::StrJoin(order.roots, " and "),
                   ", lie outside this worker's, ", absl::StrJoin(options_.roots, " and ")));
}

absl::Status Daemon::Check(const StartOrder& order, const RankPlacement& rank) const {
  if (rank.device >= options_.devices.size()) {
    return absl::InvalidArgumentError(absl::StrCat("device ", rank.device, " of a worker with ",
                                                   options_.devices.size(), " devices"));
  }
  if (options_.gpus != nullptr && options_.gpus->Lost(rank.device)) {
    return absl::UnavailableError(
        absl::StrCat("GPU ", options_.devices[rank.device].gpu->uuid, " is lost"));
  }
  if (draining_) return absl::UnavailableError("the worker is draining");
  for (const auto& [id, other] : ranks_) {
    if (id.job_id == order.job_id && id.epoch > uint64_t(order.epoch)) {
      return absl::AbortedError(
          absl::StrCat("epoch ", order.epoch, " is superseded by ", id.epoch));
    }
    // A rank of the same job is ending, and is waited for. A rank of another job may run for days.
    if (id.job_id != order.job_id && other.alive() && other.MayHold(rank.device)) {
      return absl::FailedPreconditionError(
          absl::StrCat("device ", rank.device, " is used by ", id.Name()));
    }
  }
  return absl::OkStatus();
}

void Daemon::Refuse(const RankId& id, uint32_t device, const absl::Status& reason) {
  LogWarning("start_refused", {{"rank", id.Name()}, {"reason", reason.message()}});
  // That a worker drains or an epoch is over is no fault of the job.
  const bool stopped = absl::IsUnavailable(reason) || absl::IsAborted(reason);
  const RankExit exit = {.cause = stopped ? ExitCause::kStopped : ExitCause::kOther,
                         .message = std::string(reason.message())};
  outbox_.Add(RankStatus{id, exit, device, RankState::kExited});
}

void Daemon::StartRanks(const StartOrder& order) {
  const MutexLock lock(mutex_);
  if (!RankDirectory::IsLegalJobId(order.job_id)) {
    LogError("start_refused", {{"job", order.job_id}, {"reason", "this is not a legal job id"}});
    return;
  }
  if (order.epoch > 0) StopLocked({order.job_id, uint64_t(order.epoch - 1), StopMode::kKill});
  for (const RankPlacement& wanted : order.ranks) {
    const RankId id = {order.job_id, uint64_t(order.epoch), wanted.rank};
    if (const auto it = ranks_.find(id); it != ranks_.end()) {
      outbox_.Add(it->second.Status());  // Repeated, because the controller may not know it.
      continue;
    }
    const RankDirectory directory(options_.state_directory, id);
    const auto exit = ReadExitReport(directory.File("exit_report.json"));
    if (exit.ok()) {
      outbox_.Add(RankStatus{id, *exit, wanted.device, RankState::kExited});
      continue;
    }
    if (!absl::IsNotFound(exit.status())) {  // It has run here.
      Refuse(id, wanted.device, absl::UnavailableError(exit.status().message()));
      continue;
    }
    if (const absl::Status status = Check(order, wanted); !status.ok()) {
      Refuse(id, wanted.device, status);
      continue;
    }
    const auto roots = RootsOf(order);
    if (!roots.ok()) {
      Refuse(id, wanted.device, roots.status());
      continue;
    }
    StartOrder within = order;
    within.roots = *roots;
    ranks_.try_emplace(id, Rank::Shared{options_, outbox_, metrics_, clock_}, id, wanted.device,
                       std::move(within));
  }
  LaunchWaiting();
}

void Daemon::LaunchWaiting() {
  for (auto& [id, rank] : ranks_) {
    if (rank.phase() != Rank::Phase::kWaiting) continue;
    const bool taken = std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& other) {
      return other.second.alive() && other.second.MayHold(rank.device());
    });
    if (!taken) rank.Launch(CallbacksFor(id));
  }
}

void Daemon::StopRanks(const StopOrder& order) {
  const MutexLock lock(mutex_);
  StopLocked(order);
}

void Daemon::StopLocked(const StopOrder& order) {
  for (auto& [id, rank] : ranks_) {
    if (id.job_id == order.job_id && id.epoch <= order.epoch) rank.Stop(order.mode);
  }
}

void Daemon::Answer(const RendezvousValue& answer) {
  const MutexLock lock(mutex_);
  for (auto& [id, rank] : ranks_) {
    if (id.job_id == answer.job_id && id.epoch == answer.epoch) {
      rank.Answer(answer.key, answer.value);
    }
  }
}

// Ranks of one machine find each other without the controller.
void Daemon::OnSet(Rank& rank, const channel::Set& set) {
  rank.OnSet(set);
  for (auto& [id, other] : ranks_) {
    if (id.job_id == rank.id().job_id && id.epoch == rank.id().epoch) {
      other.Answer(set.key, set.value);
    }
  }
}

void Daemon::OnGet(Rank& rank, const channel::Get& get) {
  rank.OnGet(get);
  for (const auto& [id, other] : ranks_) {
    if (id.job_id != rank.id().job_id || id.epoch != rank.id().epoch) continue;
    if (const std::string* value = other.ValueOf(get.key)) rank.Answer(get.key, *value);
  }
}

void Daemon::Acknowledge(uint64_t sequence) {
  const MutexLock lock(mutex_);
  outbox_.Acknowledge(sequence);
  for (auto& [id, rank] : ranks_) rank.Acknowledged(sequence);
}

std::vector<Device> Daemon::Devices() const {
  std::vector<Device> devices = options_.devices;
  std::erase_if(devices, [&](const Device& device) {
    return options_.gpus != nullptr && options_.gpus->Lost(device.index);
  });
  return devices;
}

std::vector<RankStatus> Daemon::Register() const {
  const MutexLock lock(mutex_);
  std::vector<RankStatus> statuses;
  for (const auto& [id, rank] : ranks_) {
    if (rank.phase() != Rank::Phase::kReported) statuses.push_back(rank.Status());
  }
  return statuses;
}

void Daemon::Connected() {
  const MutexLock lock(mutex_);
  outbox_.Rewind();
  connected_ = true;
  if (draining_) outbox_.Add(Draining{});
  for (auto& [id, rank] : ranks_) rank.Resend();
}

void Daemon::Disconnected() {
  const MutexLock lock(mutex_);
  connected_ = false;
}

void Daemon::Drain() {
  const MutexLock lock(mutex_);
  draining_ = true;
  if (connected_) outbox_.Add(Draining{});
  for (auto& [id, rank] : ranks_) rank.Stop(StopMode::kCheckpoint);
}

void Daemon::KillAll() {
  const MutexLock lock(mutex_);
  for (auto& [id, rank] : ranks_) rank.KillWithDaemon();
}

bool Daemon::idle() const {
  const MutexLock lock(mutex_);
  return ranks_.empty() && outbox_.num_reports() == 0;
}

size_t Daemon::num_live_ranks() const {
  const MutexLock lock(mutex_);
  return size_t(std::count_if(ranks_.begin(), ranks_.end(), [](const auto& entry) {
    return entry.second.alive() || entry.second.phase() == Rank::Phase::kWaiting;
  }));
}

channel::ChannelServer::Callbacks Daemon::CallbacksFor(const RankId& id) {
  // Each callback takes the lock and looks for the rank, which may have ended by then.
  const auto with_rank = [this, id](auto&& action) {
    const MutexLock lock(mutex_);
    const auto it = ranks_.find(id);
    if (it != ranks_.end()) action(it->second);
  };
  channel::ChannelServer::Callbacks callbacks;
  callbacks.hello = [=](const channel::Hello&) { with_rank([](Rank& r) { r.OnHello(); }); };
  callbacks.disconnected = [=] { with_rank([](Rank& r) { r.OnDisconnected(); }); };
  callbacks.progress = [=](const channel::Progress& p) {
    with_rank([&](Rank& r) { r.OnProgress(p); });
  };
  callbacks.ready = [=](const channel::Ready& m) { with_rank([&](Rank& r) { r.OnReady(m); }); };
  callbacks.step = [=](const channel::Step& s) { with_rank([&](Rank& r) { r.OnStep(s); }); };
  callbacks.checkpoint = [=](const channel::Checkpoint& c) {
    with_rank([&](Rank& r) { r.OnCheckpoint(c); });
  };
  callbacks.set = [=, this](const channel::Set& s) {
    with_rank([&](Rank& r) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { OnSet(r, s); });
  };
  callbacks.get = [=, this](const channel::Get& g) {
    with_rank([&](Rank& r) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { OnGet(r, g); });
  };
  return callbacks;
}

}  // namespace trainyard
