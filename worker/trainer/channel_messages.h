// Converts the records of the training loop to the messages that a rank sends to its daemon
// (docs/formats.md, section "Local socket").

#pragma once

#include "absl/time/time.h"
#include "train/step/trainer.h"
#include "worker/channel/messages.h"

namespace trainyard {

channel::Ready ToMessage(const StartRecord& record);
channel::Step ToMessage(const StepRecord& record, absl::Time now);  // `now`: the step's end.
channel::Checkpoint ToMessage(const CheckpointRecord& record);

}  // namespace trainyard
