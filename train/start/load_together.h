// How a gang loads a checkpoint. Each rank reads the parts that it needs and checks them while it
// reads. Then all ranks agree on whether every part was good. No rank reads a part only to check it
// for another rank.

#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/roots.h"
#include "kernels/collective/collective.h"
#include "models/arch/config.h"
#include "models/program/executable.h"
#include "train/checkpoint/lineage.h"
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
                                            const LoadingGang& gang,
                                            MayDiffer may_differ = MayDiffer::kAlways);

struct InitFrom {
  std::string path;
  // If the checkpoint lacks parameters, they keep their values. False: INVALID_ARGUMENT names one.
  bool subset = false;
  // An earlier attempt of the job could load the parameters, so a host that cannot do so has
  // failed.
  bool loaded_before = false;
  // The checkpoint that the earlier attempt took, if the attempt said so; only this one is loaded.
  // Only rank 0's value counts.
  std::optional<InitialisedFrom> taken = {};
  // The job's adapter. A checkpoint without one has the job's base.
  std::optional<LoraNumbers> adapter = {};
};
struct InitialParameters {
  ChosenCheckpoint chosen;
  size_t count = 0;              // The model's parameters. This and `absent` are set on rank 0.
  std::set<std::string> absent;  // The parameters that the checkpoint lacks.
};
// Loads parameters by name from the checkpoints that `from.path` names on rank 0's host
// (FindCheckpoints). Errors:
// - DATA_LOSS: none of them is good, or `from.taken` is another one by now.
// - INVALID_ARGUMENT: a parameter is missing or has another shape; or a subset would be empty; or
//   the checkpoint has another adapter than the job; or `from.taken` was removed from a directory
//   that is there.
// - With `from.loaded_before` or `from.taken`, IsStorageFault on the ranks of the host that has
//   failed, or on all ranks if none of the checkpoints is good.
absl::StatusOr<InitialParameters> LoadInitFrom(const InitFrom& from, const LoadingGang& gang);

}  // namespace trainyard
