// The part of Coordinator that runs at every tick: leases, overdue stops, placement and gauges.

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log.h"
#include "common/roots.h"
#include "controller/jobs/job_state.h"
#include "controller/workers/coordinator.h"

namespace trainyard::controller {
namespace {

std::set<std::string> AvoidedBy(const Job& job) {
  std::set<std::string> avoided;
  for (const auto& [worker_id, strikes] : job.strikes) {
    if (strikes >= kMostStrikes) avoided.insert(worker_id);
  }
  return avoided;
}

// What the jobs of one namespace may use, during one pass over the queue.
struct Share {
  absl::StatusOr<std::vector<std::string>> roots;
  std::optional<uint32_t> devices;
  uint64_t held = 0;     // By ranks that are not gone.
  uint64_t claimed = 0;  // By waiting jobs that come first.

  // Returns why the job may not be placed now. Empty: it may.
  std::string ObstacleOf(const JobFacts& facts) const {
    if (!roots.ok())
      return absl::StrCat("the namespace ", facts.name_space, " does not exist any more");
    for (const SpecPath& named : facts.paths) {
      const auto admits = [&](const std::string& root) { return MayLieBelow(named.path, root); };
      if (roots->empty() || std::any_of(roots->begin(), roots->end(), admits)) continue;
      return absl::StrCat("the namespace ", facts.name_space, " may now use ",
                          absl::StrJoin(*roots, ", "), ", and ", named.field, " is '", named.path,
                          "'; cancel the job, and submit it with another path");
    }
    if (!devices || held + claimed + facts.ranks <= *devices) return "";
    std::vector<std::string> uses;
    if (held > 0) uses.push_back(absl::StrCat("running jobs hold ", held));
    if (claimed > 0) uses.push_back(absl::StrCat("jobs before this one wait for ", claimed));
    return absl::StrCat("needs ", facts.ranks, facts.ranks == 1 ? " device" : " devices",
                        ", and the namespace ", facts.name_space, " may hold ", *devices,
                        uses.empty() ? "" : ": ", absl::StrJoin(uses, ", "));
  }
};

}  // namespace

void Coordinator::Tick() {
  book_.Tick();
  MutexLock lock(mutex_);
  ExpireLeases();
  for (const Worker* worker : table_.SlowDown()) {
    worker->link->Send(Registered{table_.pace().beat, table_.pace().lease});
  }
  StopOverdueJobs();
  ExpireComplaints();
  for (auto& [job_id, due] : storage_retry_) {
    if (due == -absl::InfiniteDuration() || clock_.Monotonic() < due) continue;
    due = -absl::InfiniteDuration();
    schedule_wanted_ = true;
  }
  if (schedule_wanted_) SchedulingPass();
  if (clock_.Monotonic() < gauges_due_) return;
  gauges_due_ = clock_.Monotonic() + options_.gauges_every;
  UpdateGauges();
}

void Coordinator::ExpireLeases() {
  const std::vector<std::string> lost = table_.Expire();
  if (lost.empty()) return;
  schedule_wanted_ = true;
  for (const std::string& worker_id : lost) {
    LogWarning("worker_lost", {{"worker", worker_id}});
    for (const Snapshot& job : book_.Live()) {
      (void)book_.Apply(job->id, Event(WorkerGone{worker_id}));
    }
  }
}

void Coordinator::ExpireComplaints() {
  for (auto it = complaints_.begin(); it != complaints_.end();) {
    if (clock_.Monotonic() < it->second) {
      ++it;
      continue;
    }
    const auto& [job_id, worker_id] = it->first;
    const Worker* worker = table_.Find(worker_id);
    if (worker == nullptr || worker->link == nullptr) {
      (void)book_.Apply(job_id, Event(WorkerGone{worker_id}));
    }
    schedule_wanted_ = true;
    it = complaints_.erase(it);
  }
}

void Coordinator::StopOverdueJobs() {
  std::vector<std::string> overdue;
  for (const auto& [job_id, deadline] : stop_by_) {
    if (clock_.Monotonic() > deadline) overdue.push_back(job_id);
  }
  for (const std::string& job_id : overdue) {
    stop_by_.erase(job_id);
    (void)book_.Apply(job_id, Event(StopOverdue{}));
  }
}

Coordinator::Holders Coordinator::HoldersOf(const std::vector<Snapshot>& jobs) const {
  Holders held;
  for (const auto& [worker_id, worker] : table_.workers()) {
    for (const auto& [key, stale] : worker.stale) {
      held[{worker_id, stale.device}] = {key.first, key.second};
    }
  }
  for (const Snapshot& job : jobs) {
    for (uint32_t i = 0; i < job->ranks.size(); ++i) {
      const Rank& rank = job->ranks[i];
      if (!IsGone(rank.phase)) held[{rank.worker_id, rank.device}] = {job->id, i};
    }
  }
  return held;
}

Coordinator::Holders Coordinator::DeviceHolders() const {
  MutexLock lock(mutex_);
  return HoldersOf(book_.Live());
}

Coordinator::Holders Coordinator::DeviceHolders(const std::string& name_space) const {
  Holders holders = DeviceHolders();
  if (name_space.empty()) return holders;
  for (auto& [device, holder] : holders) {
    if (!book_.Get(holder.job_id, name_space).ok()) holder = {"another namespace", 0};
  }
  return holders;
}

std::vector<DevicePool> Coordinator::Pools(const Holders& held) const {
  std::vector<DevicePool> pools;
  for (const auto& [worker_id, worker] : table_.workers()) {
    if (worker.state != WorkerState::kReady || worker.link == nullptr) continue;
    for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
      DevicePool pool{.worker_id = worker_id, .kind = kind, .total = 0, .free = {}};
      for (const Device& device : worker.registration.devices) {
        if (device.kind != kind) continue;
        ++pool.total;
        if (!held.contains({worker_id, device.index})) pool.free.push_back(device.index);
      }
      if (pool.total > 0) pools.push_back(std::move(pool));
    }
  }
  return pools;
}

void Coordinator::HoldToLimits(const std::vector<Snapshot>& live, std::vector<Snapshot>& waiting) {
  if (!options_.device_quota || !options_.roots_of) return;
  std::map<std::string, Share> shares;  // By namespace.
  const auto share_of = [&](const Job& job) -> Share& {
    const std::string& name = job.spec->facts.name_space;
    const auto found = shares.find(name);
    if (found != shares.end()) return found->second;
    return shares.emplace(name, Share{options_.roots_of(name), options_.device_quota(name)})
        .first->second;
  };
  for (const Snapshot& job : live) {
    share_of(*job).held += uint64_t(std::count_if(job->ranks.begin(), job->ranks.end(),
                                                  [](const Rank& r) { return !IsGone(r.phase); }));
  }
  // In the scheduler's order: the first job has the first claim on the rest of the quota.
  std::sort(waiting.begin(), waiting.end(), [](const Snapshot& a, const Snapshot& b) {
    return std::pair(-int64_t(a->spec->facts.priority), a->number) <
           std::pair(-int64_t(b->spec->facts.priority), b->number);
  });
  std::erase_if(waiting, [&](const Snapshot& job) {
    const JobFacts& facts = job->spec->facts;
    Share& share = share_of(*job);
    const std::string obstacle = share.ObstacleOf(facts);
    if (obstacle.empty()) {
      share.claimed += facts.ranks;
      return false;
    }
    book_.SetWaitingReason(job->id, obstacle);
    return true;
  });
}

void Coordinator::SchedulingPass() {
  schedule_wanted_ = false;
  const absl::Duration start = clock_.Monotonic();
  std::vector<Snapshot> waiting;
  for (Snapshot& job : book_.Waiting()) {
    if (!WaitsForStorage(*job)) waiting.push_back(std::move(job));
  }
  if (waiting.empty()) return;
  const std::vector<Snapshot> live = book_.Live();
  HoldToLimits(live, waiting);
  if (waiting.empty()) return;
  std::vector<WaitingJob> queue;
  queue.reserve(waiting.size());
  for (const Snapshot& job : waiting) {
    const JobFacts& facts = job->spec->facts;
    queue.push_back({job->id, facts.priority, job->number, facts.ranks, facts.tensor, facts.context,
                     facts.cpu_only, AvoidedBy(*job), facts.name_space});
  }
  for (const Decision& decision : Schedule(std::move(queue), Pools(HoldersOf(live)))) {
    if (decision.ranks.empty()) {
      book_.SetWaitingReason(decision.job_id, decision.reason);
    } else {
      Place(decision);
    }
  }
  metrics_.scheduling_pass_duration_seconds
      .Add({}, prometheus::Histogram::BucketBoundaries{0.0001, 0.001, 0.01, 0.1, 1, 10})
      .Observe(absl::ToDoubleSeconds(clock_.Monotonic() - start));
}

bool Coordinator::WaitsForStorage(const Job& job) {
  if (job.storage_faults == 0) return false;
  constexpr absl::Duration kFirst = absl::Milliseconds(500), kLongest = absl::Minutes(1);
  const double doubled = std::ldexp(1.0, int(std::min(job.storage_faults - 1, 16u)));
  const auto [retry, fresh] =
      storage_retry_.try_emplace(job.id, clock_.Monotonic() + std::min(kFirst * doubled, kLongest));
  return clock_.Monotonic() < retry->second;
}

void Coordinator::Place(const Decision& decision) {
  Placed placed;
  for (const RankPlacement& rank : decision.ranks) {
    placed.ranks.push_back({.worker_id = rank.worker_id,
                            .hostname = table_.Find(rank.worker_id)->registration.hostname,
                            .device = rank.device,
                            .phase = RankPhase::kOrdered,
                            .cause = ExitCause::kNone});
  }
  const absl::StatusOr<Snapshot> job = book_.Apply(decision.job_id, Event(std::move(placed)));
  // It was cancelled just now.
  if (!job.ok()) LogInfo("not_placed", {{"error", job.status().message()}});
}

std::string Coordinator::DeviceModelOf(const Job& job) const {
  if (job.ranks.empty()) return "";
  const auto worker = table_.workers().find(job.ranks.front().worker_id);
  if (worker == table_.workers().end()) return "";
  const Device* device = worker->second.FindDevice(job.ranks.front().device);
  return device == nullptr ? "" : device->model;
}

void Coordinator::UpdateGauges() {
  std::map<prometheus::Labels, double> by_state, running, workers, devices;
  const std::vector<Snapshot> jobs = book_.Live();
  for (int state = 1; state < int(JobState::kSucceeded); ++state) {
    by_state[{{"state", std::string(Name(JobState(state)))}}] = 0;
  }
  for (const Snapshot& job : jobs) {
    ++by_state[{{"state", std::string(Name(job->state))}}];
    if (job->state == JobState::kRunning) running[{{"job_id", job->id}}] = 1;
  }
  constexpr std::array<const char*, 4> kStates = {"", "ready", "lost", "draining"};
  std::array<double, kStates.size()> in_state = {};
  // Views of the workers' texts, because there may be thousands of workers.
  std::map<std::pair<absl::string_view, absl::string_view>, double> by_state_and_model;
  const Holders held = HoldersOf(jobs);
  for (const auto& [id, worker] : table_.workers()) {
    if (!worker.counts()) continue;
    ++in_state[size_t(worker.state)];
    const char* idle = worker.state == WorkerState::kReady ? "free" : "away";
    const auto first = held.lower_bound({id, 0});
    const bool holds = first != held.end() && first->first.first == id;
    for (const Device& device : worker.registration.devices) {
      const bool busy = holds && held.contains({id, device.index});
      ++by_state_and_model[{busy ? "busy" : idle, device.model}];
    }
  }
  for (size_t state = 1; state < kStates.size(); ++state) {
    workers[{{"state", kStates[state]}}] = in_state[state];
  }
  for (const auto& [texts, count] : by_state_and_model) {
    devices[{{"state", std::string(texts.first)}, {"device_model", std::string(texts.second)}}] =
        count;
  }
  Show(metrics_.jobs, by_state);
  Show(metrics_.job_running, running);
  Show(metrics_.workers, workers);
  Show(metrics_.devices, devices);
  ShowAges();
}

void Coordinator::ShowAges() {
  ControllerMetrics::Gauges& family = metrics_.worker_heartbeat_age_seconds;
  size_t shown = 0;
  for (const auto& [id, worker] : table_.workers()) {
    if (!worker.counts()) continue;
    ++shown;
    const auto [it, fresh] = ages_.try_emplace(id, nullptr);
    if (fresh) it->second = &family.Add({{"worker_id", id}});
    it->second->Set(absl::ToDoubleSeconds(clock_.Monotonic() - worker.last_heard));
  }
  if (ages_.size() == shown) return;
  for (auto it = ages_.begin(); it != ages_.end();) {
    const Worker* const worker = table_.Find(it->first);
    if (worker != nullptr && worker->counts()) {
      ++it;
      continue;
    }
    family.Remove(it->second);
    it = ages_.erase(it);
  }
}

void Coordinator::Show(ControllerMetrics::Gauges& family,
                       const std::map<prometheus::Labels, double>& values) {
  auto& shown = gauges_[&family];
  std::erase_if(shown, [&](const auto& entry) {
    if (values.contains(entry.first)) return false;
    family.Remove(entry.second);
    return true;
  });
  for (const auto& [labels, value] : values) {
    const auto [it, fresh] = shown.try_emplace(labels, nullptr);
    if (fresh) it->second = &family.Add(labels);
    it->second->Set(value);
  }
}

}  // namespace trainyard::controller
