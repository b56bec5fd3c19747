// How a gang loads a checkpoint: each rank reads, and so checks, what it needs, and all agree on
// whether that was good. Nobody reads beforehand what another rank loads.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/roots.h"
#include "kernels/collective/collective.h"
#include "models/arch/config.h"
#include "models/program/executable.h"
#include "train/checkpoint/load.h"

namespace trainyard {

// A gang that loads, as one of its ranks sees it. Every rank calls the functions below together.
struct LoadingGang {
  const ModelConfig& model;
  const Roots& roots;
  Collective& everyone;
  Executable& executable;
};

// Both load the first of some checkpoints, newest first, in which no rank finds damage: the same on
// all ranks. Errors are those of the lowest rank that has one (AgreeOnStatus); INVALID_ARGUMENT
// where the checkpoint is another model's.

// Everything, from rank 0's `candidates`; nothing where there are none. INTERNAL with every reason
// where none of them is good, since other hosts may read them; an error for which IsStorageFault
// holds where this host cannot read one.
absl::StatusOr<ChosenCheckpoint> LoadNewest(const std::vector<std::string>& candidates,
                                            const LoadingGang& gang);

// Parameters, from what `init_from` names (FindCheckpoints) on rank 0's host. DATA_LOSS where none
// is good.
absl::StatusOr<ChosenCheckpoint> LoadInitFrom(const std::string& init_from,
                                              const LoadingGang& gang);

}  // namespace trainyard
