// What a rank tells its daemon (docs/formats.md, section "Local socket"), of what the training loop
// says.

#pragma once

#include "absl/time/time.h"
#include "train/step/trainer.h"
#include "worker/channel/messages.h"

namespace trainyard {

channel::Ready ToMessage(const StartRecord& record);
channel::Step ToMessage(const StepRecord& record, absl::Time now);  // `now`: the step's end.
channel::Checkpoint ToMessage(const CheckpointRecord& record);

}  // namespace trainyard
