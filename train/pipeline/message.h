// The messages between the parts of a pipeline. They follow from the actions of a schedule.

#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "train/pipeline/schedule.h"

namespace trainyard {

// The output of a part, for the next part's forward, or the gradient of this output, for the
// previous part's backward. Sender and receiver derive equal messages. If one stage holds both
// parts, nothing is sent: the stage hands the message over from chunk to chunk.
struct PipelineMessage {
  enum Kind { kActivation, kGradient };
  Kind kind;
  int from;  // Stages.
  int to;
  int part;  // The part that reads the message.
  int micro_batch;

  bool stays() const { return from == to; }  // The message does not leave its stage.
  // Messages of one channel are received in the order in which they are sent. Two stages have one
  // channel in each direction. Messages that stay have one channel for each part.
  std::tuple<int, int, int> channel() const { return {from, to, stays() ? part : -1}; }

  bool operator==(const PipelineMessage&) const = default;
};
std::string ToString(const PipelineMessage& message);

// Returns the message that `stage` must have received before it runs the action. Returns nullopt
// for the first part's forward, the last part's backward, and the weights' half of backward.
std::optional<PipelineMessage> ReceiveBefore(const PipelineSchedule& schedule, int stage,
                                             const PipelineAction& action);

// Returns the message that `stage` sends when the action is done. It does not wait for the
// receiver.
std::optional<PipelineMessage> SendAfter(const PipelineSchedule& schedule, int stage,
                                         const PipelineAction& action);

// When a stage can post the receive of each message. Item i of the result has the indices, in
// order, of the actions whose messages have memory as soon as action i - 1 is done. A message has
// memory when its slot's previous action is done: for an activation, that action ends the
// micro-batch that held the slot; for a gradient, it is the micro-batch's own forward. Messages
// from one stage are expected in the order in which they arrive. Messages that stay on the stage
// are not in the result.
std::vector<std::vector<int>> ExpectedFrom(const PipelineSchedule& schedule, int stage);

}  // namespace trainyard
