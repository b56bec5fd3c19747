// The part of Coordinator that runs by the clock: leases, overdue stops, placement, gauges.

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "controller/workers/coordinator.h"

namespace trainyard::controller {
namespace {

// The worker's name for the compute type of a precision, as in PeakRate.
std::string DtypeOf(const std::string& precision) {
  if (precision == "F64") return "f64";
  if (precision == "F32") return "f32";
  return "bf16";
}

}  // namespace

void Coordinator::Tick() {
  book_.Tick();
  std::lock_guard lock(mutex_);
  ExpireLeases();
  StopOverdueJobs();
  if (schedule_wanted_) SchedulingPass();
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
  std::lock_guard lock(mutex_);
  return HoldersOf(book_.Live());
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

void Coordinator::SchedulingPass() {
  schedule_wanted_ = false;
  const absl::Duration start = clock_.Monotonic();
  const std::vector<Snapshot> jobs = book_.Live();
  std::vector<WaitingJob> waiting;
  for (const Snapshot& job : jobs) {
    // Placing acts on the applied state, but only what is published may be seen to act: a job whose
    // last change is not durable yet is placed by the pass that its publication asks for.
    const JobFacts& facts = job->spec->facts;
    if (job->Placeable() && book_.Published(job->id)->Placeable()) {
      waiting.push_back(
          {job->id, facts.priority, job->number, facts.ranks, facts.tensor, facts.cpu_only});
    }
  }
  if (waiting.empty()) return;
  for (const Decision& decision : Schedule(std::move(waiting), Pools(HoldersOf(jobs)))) {
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

void Coordinator::Place(const Decision& decision) {
  Placed placed;
  for (const PlacedRank& rank : decision.ranks) {
    placed.ranks.push_back({.worker_id = rank.worker_id,
                            .hostname = table_.Find(rank.worker_id)->registration.hostname,
                            .device = rank.device,
                            .phase = RankPhase::kOrdered,
                            .cause = ExitCause::kNone});
  }
  const absl::StatusOr<Snapshot> job = book_.Apply(decision.job_id, Event(std::move(placed)));
  if (!job.ok()) LogInfo("not_placed", {{"error", job.status().message()}});  // Cancelled just now.
}

DeviceFacts Coordinator::FactsOf(const Job& job) const {
  DeviceFacts facts;
  const std::string dtype = DtypeOf(job.spec->facts.precision);
  double peak = 0;
  bool known = true;
  for (const Rank& rank : job.ranks) {
    const auto worker = table_.workers().find(rank.worker_id);
    const Device* device =
        worker == table_.workers().end() ? nullptr : worker->second.FindDevice(rank.device);
    if (device == nullptr) return {};
    if (facts.model.empty()) facts.model = device->model;
    const auto rate = std::find_if(device->peaks.begin(), device->peaks.end(),
                                   [&](const PeakRate& p) { return p.dtype == dtype; });
    known = known && rate != device->peaks.end() && rate->flops > 0;
    if (known) peak += rate->flops;
  }
  if (known && peak > 0) facts.peak_flops = peak;
  return facts;
}

void Coordinator::UpdateGauges() {
  std::map<std::string, std::pair<prometheus::Labels, double>> values;
  const auto add = [&](const char* family, const prometheus::Labels& labels, double by) {
    std::string key = family;
    for (const auto& [name, value] : labels) absl::StrAppend(&key, "\n", name, "=", value);
    auto& entry = values[key];
    entry.first = labels;
    entry.second += by;
  };
  const std::vector<Snapshot> jobs = book_.Live();
  for (int state = 1; state < int(JobState::kSucceeded); ++state) {
    add("jobs", {{"state", std::string(Name(JobState(state)))}}, 0);
  }
  for (const Snapshot& job : jobs) add("jobs", {{"state", std::string(Name(job->state))}}, 1);
  constexpr std::array<const char*, 4> kStates = {"", "ready", "lost", "draining"};
  for (int state = 1; state < 4; ++state) add("workers", {{"state", kStates[size_t(state)]}}, 0);
  const Holders held = HoldersOf(jobs);
  for (const auto& [id, worker] : table_.workers()) {
    if (worker.session == 0) continue;
    const bool ready = worker.state == WorkerState::kReady;
    add("workers", {{"state", kStates[size_t(worker.state)]}}, 1);
    add("heartbeat", {{"worker_id", id}},
        absl::ToDoubleSeconds(clock_.Monotonic() - worker.last_heard));
    for (const Device& device : worker.registration.devices) {
      const bool busy = held.contains({id, device.index});
      add("devices",
          {{"state", busy    ? "busy"
                     : ready ? "free"
                             : "away"},
           {"device_model", device.model}},
          1);
    }
  }
  const auto family = [&](const std::string& key) -> ControllerMetrics::Gauges& {
    if (key.starts_with("jobs")) return metrics_.jobs;
    if (key.starts_with("workers")) return metrics_.workers;
    if (key.starts_with("devices")) return metrics_.devices;
    return metrics_.worker_heartbeat_age_seconds;
  };
  for (auto it = gauges_.begin(); it != gauges_.end();) {
    if (values.contains(it->first)) {
      ++it;
      continue;
    }
    family(it->first).Remove(it->second);
    it = gauges_.erase(it);
  }
  for (const auto& [key, entry] : values) {
    prometheus::Gauge*& gauge = gauges_[key];
    if (gauge == nullptr) gauge = &family(key).Add(entry.first);
    gauge->Set(entry.second);
  }
}

}  // namespace trainyard::controller
