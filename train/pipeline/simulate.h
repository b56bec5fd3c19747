// What a pipeline schedule does to time and memory, without running it.

#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "train/pipeline/schedule.h"

namespace trainyard {

// In any one unit; the same for every part. kBackward takes both halves.
struct ActionTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double communication = 0;  // From a message's sending to its arrival; stages compute meanwhile.
};

struct Simulation {
  struct Interval {
    double start;
    double end;
  };
  struct Stage {
    std::vector<Interval> actions;  // As in the schedule.
    double bubble;       // Idle time, from 0 to the makespan, over the time spent in actions.
    int peak_in_flight;  // Most chunks' activations held at once, over all chunks.
  };
  std::vector<Stage> stages;
  double makespan;  // When the last stage is done.
};

// Every action runs as soon as its stage has done the one before and has received what it needs.
// Messages between two stages arrive in the order they were sent. An error if stages would wait for
// one another forever, or receive in another order. The options and the actions' indices must be
// legal.
absl::StatusOr<Simulation> Simulate(const PipelineSchedule& schedule, const ActionTimes& times);

}  // namespace trainyard
