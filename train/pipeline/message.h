// What passes between the stages of a pipeline, as the actions of a schedule imply it.

#pragma once

#include <optional>
#include <string>

#include "train/pipeline/schedule.h"

namespace trainyard {

// The output of a part, for the next part's forward, or the gradient of it, for the previous part's
// backward. Equal at both ends.
struct PipelineMessage {
  enum Kind { kActivation, kGradient };
  Kind kind;
  int from;  // Stages.
  int to;
  int part;  // That reads it; its chunk is part / stages.
  int micro_batch;

  bool operator==(const PipelineMessage&) const = default;
};
std::string ToString(const PipelineMessage& message);

// What `stage` must have received before it runs the action. Nothing for the first part's forward,
// the last part's backward, and backwards of weights.
std::optional<PipelineMessage> ReceiveBefore(const ScheduleOptions& options, int stage,
                                             const PipelineAction& action);

// What `stage` sends when the action is done, without waiting for the receiver.
std::optional<PipelineMessage> SendAfter(const ScheduleOptions& options, int stage,
                                         const PipelineAction& action);

}  // namespace trainyard
