// What must hold in every run, whatever failed: during it, and once everything has healed.

#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "controller/jobs/job.h"
#include "tests/simulation/controller_process.h"
#include "tests/simulation/job_plan.h"
#include "tests/simulation/machine.h"

namespace trainyard::simulation {

using Machines = std::vector<std::unique_ptr<Machine>>;

class Checks {
 public:
  Checks(EventQueue& queue, const Machines& machines, std::string share)
      : queue_(queue), machines_(machines), share_(std::move(share)) {}

  // Why an attempt may end early: faults that no other part can hide from it. A daemon's death and
  // the controller's are none.
  void Excuse(const std::string& job_id, uint64_t epoch) { excused_.emplace(job_id, epoch); }
  void ExcuseMachine(const std::string& machine, absl::Duration lasting);

  // It has missed so long what went on, and acts on it only now.
  void ControllerStoodStill(absl::Duration away);

  // While the controller acts.
  void OnRefused(const v1::ConnectRequest& request);
  void OnAcknowledged(PumpedStore& store, const v1::ConnectRequest& request);
  void OnHeard(const v1::ConnectRequest& request);
  void OnStarted();
  void OnTick(ControllerProcess& controller);

  // The job has saved: what a superseded attempt commits must never become loadable.
  void OnCommitted(const std::string& job_id, const JobPlan& plan, int64_t epoch, int64_t step);

  // Once every job has ended, and the machines had time to tell all.
  void AtEnd(ControllerProcess& controller, const std::map<std::string, JobPlan>& jobs);

 private:
  struct Seen {
    controller::Snapshot job;
    absl::Duration placed;  // About when.
  };
  using StepKey = std::tuple<std::string, uint64_t, uint64_t, uint32_t, uint64_t>;
  static StepKey KeyOf(const v1::StepReport& step);

  bool Excused(const Seen& attempt) const;
  void CheckAttempt(ControllerProcess& controller, const controller::Snapshot& job);
  void CheckJob(ControllerProcess& controller, const std::string& id, const JobPlan& plan);
  void CheckHistory(ControllerProcess& controller, const controller::Job& job, const JobPlan& plan);
  void CheckDirectory(const std::string& id, const JobPlan& plan);

  EventQueue& queue_;
  const Machines& machines_;
  const std::string share_;
  std::set<std::pair<std::string, uint64_t>> excused_;
  std::multimap<std::string, std::pair<absl::Duration, absl::Duration>> windows_;
  std::set<StepKey> refused_;
  std::map<std::string, Seen> seen_;
};

}  // namespace trainyard::simulation
