#include "controller/workers/worker_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace trainyard::controller {
namespace {

// Expire() is called several times a second. A longer gap means that this process stood still.
constexpr absl::Duration kStandstill = absl::Seconds(2);

// The table remembers a lost worker for people who ask about it.
constexpr absl::Duration kForgetAfter = absl::Hours(1);

// Workers are told a new lease only if it is longer by this factor, and not for each new worker.
constexpr double kWorthTelling = 1.25;

}  // namespace

const Device* Worker::FindDevice(uint32_t index) const {
  for (const Device& device : registration.devices) {
    if (device.index == index) return &device;
  }
  return nullptr;
}

void WorkerTable::Expect(const std::string& worker_id, absl::Duration grace) {
  Worker& worker = workers_[worker_id];
  worker.registration.worker_id = worker_id;
  worker.register_time = worker.last_heartbeat_time = clock_.Now();
  worker.last_heard = clock_.Monotonic();
  worker.lease_end = clock_.Monotonic() + grace;
  grace_end_ = std::max(grace_end_, worker.lease_end);
}

absl::Duration WorkerTable::LeaseEnd(const Worker& worker) const {
  return std::max(clock_.Monotonic() + worker.lease, grace_end_);
}

absl::StatusOr<Worker*> WorkerTable::Connect(Registration registration,
                                             std::shared_ptr<WorkerLink> link) {
  Worker& worker = workers_[registration.worker_id];
  if (worker.link != nullptr && worker.registration.instance_id != registration.instance_id) {
    return absl::AlreadyExistsError(absl::StrCat(
        "another process, on the host ", worker.registration.hostname,
        ", is connected as the worker ", registration.worker_id, ". If the state directory on ",
        registration.hostname, " is a copy, remove the file worker_id in the copy"));
  }
  if (worker.link != nullptr) {
    worker.link->Close(absl::AbortedError(
        absl::StrCat("worker ", registration.worker_id, " connected again elsewhere")));
  }
  registration.running.clear();
  const bool still_draining = worker.state == WorkerState::kDraining &&
                              worker.registration.instance_id == registration.instance_id;
  worker.registration = std::move(registration);
  worker.state = still_draining ? WorkerState::kDraining : WorkerState::kReady;
  worker.left = false;
  worker.register_time = worker.last_heartbeat_time = clock_.Now();
  worker.last_heard = clock_.Monotonic();
  worker.lease = pace().lease;
  worker.lease_end = LeaseEnd(worker);
  worker.session = ++last_session_;
  worker.link = std::move(link);
  worker.stale.clear();
  worker.told.clear();
  return &worker;
}

Pace WorkerTable::pace() const {
  const double slower = std::max(1.0, double(workers_.size()) / double(kLargeFleet));
  return {.beat = slower * pace_.beat, .lease = slower * pace_.lease};
}

std::vector<Worker*> WorkerTable::SlowDown() {
  std::vector<Worker*> tell;
  const Pace now = pace();
  if (now.lease < kWorthTelling * told_.lease) return tell;
  told_ = now;
  for (auto& [id, worker] : workers_) {
    if (worker.state == WorkerState::kLost || worker.link == nullptr) continue;
    worker.lease = now.lease;
    worker.lease_end = std::max(worker.lease_end, worker.last_heard + now.lease);
    tell.push_back(&worker);
  }
  return tell;
}

Worker* WorkerTable::Hear(const Session& session) {
  Worker* worker = Find(session.worker_id);
  if (worker == nullptr || worker->session != session.number ||
      worker->state == WorkerState::kLost) {
    return nullptr;
  }
  worker->last_heartbeat_time = clock_.Now();
  worker->last_heard = clock_.Monotonic();
  worker->lease_end = LeaseEnd(*worker);
  return worker;
}

bool WorkerTable::Disconnect(const Session& session) {
  Worker* worker = Find(session.worker_id);
  if (worker == nullptr || worker->session != session.number || worker->link == nullptr) {
    return false;
  }
  worker->link = nullptr;
  // No daemon takes over the ranks of a draining one.
  if (worker->state == WorkerState::kDraining) return true;
  worker->lease_end = std::max(worker->lease_end, clock_.Monotonic() + worker->registration.detach);
  return true;
}

bool WorkerTable::Expel(const Session& session) {
  Worker* worker = Find(session.worker_id);
  if (worker == nullptr || worker->session != session.number ||
      worker->state == WorkerState::kLost) {
    return false;
  }
  worker->link = nullptr;
  worker->lease_end = clock_.Monotonic() - absl::Nanoseconds(1);
  return true;
}

std::vector<std::string> WorkerTable::Expire() {
  const absl::Duration now = clock_.Monotonic();
  const absl::Duration pause = now - last_expire_;
  last_expire_ = now;
  if (pause > kStandstill) {
    LogWarning("controller_stood_still", {{"seconds", absl::ToDoubleSeconds(pause)}});
    for (auto& [id, worker] : workers_) worker.lease_end += pause;
  }
  std::vector<std::string> lost;
  for (auto it = workers_.begin(); it != workers_.end();) {
    Worker& worker = it->second;
    if (worker.state == WorkerState::kLost) {
      it = now - worker.lease_end > kForgetAfter ? workers_.erase(it) : std::next(it);
      continue;
    }
    // The controller has not read what this worker sent, so its silence says nothing. If the
    // connection breaks, this ends.
    if (worker.link != nullptr && worker.link->holding()) worker.lease_end = now + worker.lease;
    if (now > worker.lease_end) {
      worker.left = worker.state == WorkerState::kDraining;
      worker.state = WorkerState::kLost;
      if (worker.link != nullptr) {
        worker.link->Close(absl::AbortedError("the lease ran out: register again"));
      }
      worker.link = nullptr;
      lost.push_back(it->first);
    }
    ++it;
  }
  return lost;
}

Worker* WorkerTable::Find(const std::string& worker_id) {
  const auto found = workers_.find(worker_id);
  return found == workers_.end() ? nullptr : &found->second;
}

}  // namespace trainyard::controller
