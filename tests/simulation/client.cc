#include "tests/simulation/client.h"

#include "absl/strings/str_cat.h"

namespace trainyard::simulation {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(5);

}  // namespace

void Client::Start(const std::vector<JobPlan>& plans) {
  waiting_ = plans.size();
  for (const JobPlan& plan : plans) {
    queue_.After(queue_.Between({}, absl::Seconds(10)), [this, plan] { Submit(plan); });
  }
}

void Client::Submit(const JobPlan& plan) {
  if (controller_.up()) {
    controller_.process()->Do([this, plan] {
      const bool lost = queue_.Chance(0.2);  // The answer, on its way.
      controller_.book().Submit(plan.request_id(), plan.Spec(),
                                [this, plan, lost](absl::StatusOr<controller::Snapshot> job) {
                                  if (!lost) Answered(plan, job);
                                });
    });
  }
  queue_.After(kDeadline, [this, plan] {
    if (!ids_.contains(plan.index)) Submit(plan);
  });
}

void Client::Answered(const JobPlan& plan, const absl::StatusOr<controller::Snapshot>& job) {
  if (!job.ok()) {
    if (absl::IsUnavailable(job.status()) || absl::IsResourceExhausted(job.status())) return;
    return queue_.Fail(absl::StrCat("submit: ", job.status().ToString()));
  }
  const std::string& id = (*job)->id;
  queue_.Trace(plan.request_id(), " is job ", id, ", of ", plan.ranks, " ranks and ", plan.steps,
               " steps");
  const auto [known, first] = ids_.try_emplace(plan.index, id);
  if (known->second != id) {
    queue_.Fail(absl::StrCat(plan.request_id(), " was job ", known->second, " and is now ", id));
  }
  if (!first) return;
  --waiting_;
  jobs_[id] = plan;
  if (queue_.Chance(0.3)) {
    queue_.After(queue_.Between({}, absl::Seconds(60)), [this, plan] { Submit(plan); });
  }
}

}  // namespace trainyard::simulation
