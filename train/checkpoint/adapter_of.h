// The adapter of a checkpoint, for programs that compute with it.

#pragma once

#include "models/program/low_rank.h"
#include "train/checkpoint/load.h"

namespace trainyard {

// Returns the layers for which the checkpoint has adapters, with the adapters' numbers. Of no rank
// if it has none.
LowRank AdapterOf(const Checkpoint& checkpoint);

}  // namespace trainyard
