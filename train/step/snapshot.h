// The boxes of a running job: what its checkpoints hold, seen in the executable's memory.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/program/executable.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/save.h"

namespace trainyard {

// Master weights, first and second moments of every parameter of this rank. Views of the
// executable's memory, which must be the host's.
std::vector<SourceBox> SourceBoxes(const Executable& executable);

enum class LoadWhat { kParameters, kEverything };  // Everything: with the optimizer's moments.

// Fills them from a checkpoint; the caller runs Action::kPrepare afterwards.
absl::Status LoadSnapshot(const Checkpoint& checkpoint, LoadWhat what, Executable& executable);

}  // namespace trainyard
