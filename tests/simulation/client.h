// Who submits the jobs: again with the same request_id until there is an answer, and sometimes
// once more. What it was told must stay true.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/simulation/controller_process.h"
#include "tests/simulation/job_plan.h"

namespace trainyard::simulation {

class Client {
 public:
  Client(EventQueue& queue, ControllerProcess& controller)
      : queue_(queue), controller_(controller) {}

  void Start(const std::vector<JobPlan>& plans);
  bool all_acknowledged() const { return waiting_ == 0; }
  const std::map<std::string, JobPlan>& jobs() const { return jobs_; }  // By id.

 private:
  void Submit(const JobPlan& plan);
  void Answered(const JobPlan& plan, const absl::StatusOr<controller::Snapshot>& job);

  EventQueue& queue_;
  ControllerProcess& controller_;
  size_t waiting_ = 0;
  std::map<uint32_t, std::string> ids_;  // By plan.
  std::map<std::string, JobPlan> jobs_;
};

}  // namespace trainyard::simulation
