// Runs a schedule as a trainer does, with numbers for tensors: each stage walks through its list,
// slots are its memory, and the queue between two stages hands out what comes next, unlabelled.

#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "train/pipeline/schedule.h"

namespace trainyard::testing {

// What each part computed, in the order it did, and for which micro-batch it did so. Part g maps x
// to y = 2 x x + (2 g + 3) x modulo 2^64, which like its derivative loses no bit of x.
struct ToyGradients {
  using Terms = std::vector<std::pair<int, uint64_t>>;  // Micro-batch and value.
  explicit ToyGradients(const ScheduleOptions& options);

  std::vector<Terms> outputs;  // y of every forward.
  std::vector<Terms> inputs;   // dx = dy (4 x + 2 g + 3).
  std::vector<Terms> weights;  // dw = dy x.

  bool operator==(const ToyGradients&) const = default;
};

// One micro-batch after another through one part after another.
ToyGradients ExpectedGradients(const ScheduleOptions& options);

// Nothing if the stages block, an action lies outside memory, or messages are left over.
std::optional<ToyGradients> RunSchedule(const PipelineSchedule& schedule);

}  // namespace trainyard::testing
