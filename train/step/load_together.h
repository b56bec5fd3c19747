// How a gang loads a checkpoint. Each rank reads the parts that it needs and checks them while it
// reads. Then all ranks agree on whether every part was good. No rank reads a part only to check it
// for another rank.

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

// A gang that loads a checkpoint, as one of its ranks sees the gang. All ranks of the gang call
// each function below at the same time.
struct LoadingGang {
  const ModelConfig& model;
  const Roots& roots;
  Collective& everyone;
  Executable& executable;
};

// Both functions try checkpoints from the newest to the oldest, and load the first one in which no
// rank finds damage. All ranks load the same checkpoint. When ranks have errors, the error of the
// lowest such rank is returned (AgreeOnStatus). INVALID_ARGUMENT: the checkpoint is another
// model's.

// Loads parameters and optimizer state from the first good one of rank 0's `candidates`. Returns no
// checkpoint if there are no candidates. Errors:
// - INTERNAL, with every reason: no candidate is good. Other hosts may still be able to read one.
// - IsStorageFault: this host cannot read a candidate, or this host's program is too old for it.
absl::StatusOr<ChosenCheckpoint> LoadNewest(const std::vector<std::string>& candidates,
                                            const LoadingGang& gang);

// What an attempt takes from another job's checkpoint.
struct InitFrom {
  std::string path;     // As the job's spec has it.
  bool subset = false;  // Parameters that are not there keep what they have.
};

// Loads parameters, by name, from the checkpoints that `init_from` names on rank 0's host
// (FindCheckpoints). Of a subset, the model may differ in all but its family and the shapes of what
// both have; INVALID_ARGUMENT where they have nothing in common.
// DATA_LOSS: none of them is good. With `loaded_before`, an earlier attempt of the job could load
// them, so that a host that cannot do so has failed: IsStorageFault, on that host's ranks alone, or
// on all ranks if none of the checkpoints is good.
absl::StatusOr<ChosenCheckpoint> LoadInitFrom(const InitFrom& init_from, bool loaded_before,
                                              const LoadingGang& gang);

// How many of a model's parameters a checkpoint has, by name, and of how many.
struct SharedParameters {
  int64_t shared = 0;
  int64_t of = 0;
};
SharedParameters CountShared(const Checkpoint& checkpoint, const ModelConfig& model);

}  // namespace trainyard
