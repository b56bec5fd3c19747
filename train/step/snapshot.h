// The boxes of a running job: what its checkpoints hold, seen in the executable's memory.

#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/collective/collective.h"
#include "models/program/executable.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/save.h"

namespace trainyard {

// What this rank writes of a checkpoint: master weights, first and second moments of what it
// updates, where it is the first of the ranks that hold the same. Views of the executable's memory,
// which must be the host's.
std::vector<SourceBox> SourceBoxes(const Executable& executable);

// What it writes of the base: frozen parameters, likewise.
std::vector<SourceBox> FrozenSourceBoxes(const Executable& executable);

// Writes a checkpoint of all ranks together: each its boxes, rank 0 the commit. Every rank calls it
// with the same directory and state; all return the same status, the manifest on rank 0 alone. What
// a failed attempt wrote is removed, so that a full disk is no fuller.
absl::StatusOr<Manifest> SaveSnapshot(const std::string& directory, const RunState& state,
                                      const Executable& executable, Collective& everyone,
                                      Storage& storage);

// Writes the base of the attempt, the frozen parameters of all ranks, in the same way. The
// checkpoints to come name it (RunState::base). All ranks return the same.
absl::StatusOr<BaseReference> SaveBase(const std::string& directory, RunState state,
                                       const Executable& executable, Collective& everyone,
                                       Storage& storage);

enum class LoadWhat {
  kParameters,  // By name, and of other dtypes: widened, or where they are frozen rounded.
  kEverything,  // With the optimizer's moments, all to the bit.
};

// Fills them from a checkpoint; the caller runs Action::kPrepare afterwards. `absent`: as
// Checkpoint::Load has it.
absl::Status LoadSnapshot(const Checkpoint& checkpoint, LoadWhat what, Executable& executable,
                          std::set<std::string>* absent = nullptr);

}  // namespace trainyard
