// Finds the time and memory that a pipeline schedule takes, without running it.

#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "train/pipeline/schedule.h"

namespace trainyard {

// Times in any unit, the same for every part. kBackward takes the time of both halves.
struct ActionTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double communication = 0;  // From sending a message to its arrival; stages compute meanwhile.
};

struct Simulation {
  struct Interval {
    double start;
    double end;
  };
  struct Stage {
    std::vector<Interval> actions;  // As in the schedule.
    double bubble;       // Idle time, from 0 to the makespan, divided by the time in actions.
    int peak_in_flight;  // Most (micro-batch, chunk) pairs whose activations are held at once.
  };
  std::vector<Stage> stages;
  double makespan;  // When the last stage ends.
};

// Runs each action as soon as its stage has finished the one before and has received the message
// that the action needs. Messages between two stages arrive in the order in which they were sent.
// The options and the actions' indices must be legal. Returns an error if stages would wait for one
// another forever, or receive in another order.
absl::StatusOr<Simulation> Simulate(const PipelineSchedule& schedule, const ActionTimes& times);

}  // namespace trainyard
