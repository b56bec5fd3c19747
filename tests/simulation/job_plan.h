// What the simulated jobs are: how large, how long, and what their state is after each step.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rng.h"
#include "controller/jobs/job.h"

namespace trainyard::simulation {

struct JobPlan {
  uint32_t index = 0;
  uint32_t ranks = 1;
  uint64_t steps = 30;
  uint64_t save_every = 5;
  int64_t keep = 2;
  bool saves = true;
  absl::Duration step_time;
  std::string directory;  // As the spec has it; relative to the share.

  std::string request_id() const { return absl::StrCat("request-", index); }
  uint64_t initial() const { return Mix(index); }
  // A running hash: a sample that is used twice, or not at all, changes all that follows.
  uint64_t Next(uint64_t state, uint64_t step) const { return Mix(state ^ (step << 8)); }
  uint64_t StateAfter(uint64_t step) const {
    uint64_t state = initial();
    for (uint64_t s = 1; s <= step; ++s) state = Next(state, s);
    return state;
  }
  static double LossOf(uint64_t state) { return double(state >> 12) * 0x1p-52; }

  std::shared_ptr<const controller::Spec> Spec() const {
    controller::Spec spec;
    spec.bytes = spec.config = absl::StrCat(index);
    spec.facts.name = absl::StrCat("job-", index);
    spec.facts.ranks = ranks;
    spec.facts.steps = steps;
    spec.facts.precision = "F32";
    spec.facts.max_restarts = 1'000'000;
    if (saves) spec.facts.checkpoint_directory = directory;
    return std::make_shared<const controller::Spec>(spec);
  }
};

}  // namespace trainyard::simulation
