// The boxes of a running job that its checkpoints hold, as views of the executable's memory.

#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/collective/collective.h"
#include "models/program/executable.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/save.h"
#include "train/hf/carried_files.h"

namespace trainyard {

// Returns what this rank writes of a checkpoint: master weights and the optimizer's state of the
// parameters that it updates, if it is the first of the ranks that hold the same. The boxes are
// views of the executable's memory on its device. The caller must have run Action::kJoin.
std::vector<SourceBox> SourceBoxes(const Executable& executable);

// Returns what this rank writes of the base: frozen parameters, by the same rule.
std::vector<SourceBox> FrozenSourceBoxes(const Executable& executable);

// A checkpoint to be written. A view.
struct Snapshot {
  const std::string& directory;  // The job's.
  const RunState& state;
  const KeptFiles* kept = nullptr;       // What it keeps of an imported directory. Null: nothing.
  const KeptFiles* tokenizer = nullptr;  // The tokenizer that the spec names. Null: none.
};
// Writes a checkpoint of all ranks together: each rank writes its boxes, and rank 0 commits. Every
// rank must call this with the same directory and state. All ranks return the same status; only
// rank 0 gets the manifest. If an attempt fails, its files are removed, so that a full disk does
// not become fuller.
absl::StatusOr<Manifest> SaveSnapshot(const Snapshot& snapshot, Executable& executable,
                                      Collective& everyone, Storage& storage);

// Writes the base of the attempt, the frozen parameters of all ranks, in the same way. Later
// checkpoints name the base (RunState::base). All ranks return the same.
absl::StatusOr<BaseReference> SaveBase(const std::string& directory, RunState state,
                                       const Executable& executable, Collective& everyone,
                                       Storage& storage);

// Whether the base that the job's checkpoints name is missing or damaged, so that none of them
// could be loaded. A base that rank 0's host cannot read does not count as lost: writing it again
// would first remove a base that may be good. `base`: on rank 0; nullopt is not lost. Returns the
// same on all ranks.
bool BaseIsLost(const std::string& directory, const std::optional<BaseReference>& base,
                Collective& everyone);

enum class LoadWhat {
  kParameters,  // By name, also from another dtype: widened, or rounded if frozen; weights in NF4
                // are quantised if they are not in NF4 there.
  kBase,        // The same without low-rank adapters, which keep their values.
  kEverything,  // Also the optimizer's state, and those histories of greatest values that the
                // checkpoint has. All bits are the same, but for moments of another dtype, which
                // are widened, or rounded to nearest even.
};

// Fills the executable's boxes from a checkpoint. The caller must run Action::kPrepare afterwards.
// `absent`: as in Checkpoint::Load.
absl::Status LoadSnapshot(const Checkpoint& checkpoint, LoadWhat what, Executable& executable,
                          std::set<std::string>* absent = nullptr);
// Does the same with kBase and the parameters of a Hugging Face directory (LoadHf).
absl::Status LoadImported(const HfModel& model, Executable& executable);

}  // namespace trainyard
