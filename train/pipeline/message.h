// What passes between the parts of a pipeline, as the actions of a schedule imply it.

#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "train/pipeline/schedule.h"

namespace trainyard {

// The output of a part, for the next part's forward, or the gradient of it, for the previous part's
// backward. Equal at both ends. Where one stage holds both parts, nothing is sent: the stage hands
// the message over from chunk to chunk.
struct PipelineMessage {
  enum Kind { kActivation, kGradient };
  Kind kind;
  int from;  // Stages.
  int to;
  int part;  // That reads it.
  int micro_batch;

  bool stays() const { return from == to; }  // On its stage.
  // Whatever goes through one channel is received in the order in which it is sent. Two stages have
  // one in each direction; what stays has one for each part.
  std::tuple<int, int, int> channel() const { return {from, to, stays() ? part : -1}; }

  bool operator==(const PipelineMessage&) const = default;
};
std::string ToString(const PipelineMessage& message);

// What `stage` must have received before it runs the action. Nothing for the first part's forward,
// the last part's backward, and backwards of weights.
std::optional<PipelineMessage> ReceiveBefore(const PipelineSchedule& schedule, int stage,
                                             const PipelineAction& action);

// What `stage` sends when the action is done, without waiting for the receiver.
std::optional<PipelineMessage> SendAfter(const PipelineSchedule& schedule, int stage,
                                         const PipelineAction& action);

// From when on a stage can expect each message: item i has the actions (their indices, in order)
// whose messages have a place as soon as action i - 1 is done. That is when their slot's action
// before is: for an activation the end of the micro-batch that held the slot, for a gradient its
// own forward. From one stage, messages are expected in the order in which they come. What stays on
// the stage is not expected.
std::vector<std::vector<int>> ExpectedFrom(const PipelineSchedule& schedule, int stage);

}  // namespace trainyard
