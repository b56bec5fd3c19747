// How a gang begins with the parameters of a Hugging Face directory (`model: {import: DIR}`). Each
// rank reads the parts that it needs, as it does from a checkpoint (load_together.h).

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "train/checkpoint/inputs.h"
#include "train/config/job_config.h"
#include "train/hf/carried_files.h"
#include "train/start/load_together.h"

namespace trainyard {

struct ImportedParameters {
  KeptFiles kept;                       // On rank 0: what the job's checkpoints keep.
  std::vector<InputFingerprint> files;  // Of the directory, on every rank.
};

// Loads all parameters from the directory that `choice` names. All ranks call this at the same
// time, and all return an error if one has an error (AgreeOnStatus); its message begins with
// "model.import: ". `loaded_before`: an earlier attempt of the job could load them, so a host that
// cannot do so has failed. Errors:
// - NOT_FOUND, DATA_LOSS, INVALID_ARGUMENT: those of HfModel::Open and LoadHf.
// - INVALID_ARGUMENT: config.json describes another architecture; names the first field.
// - With `loaded_before`, IsStorageFault instead of the first two.
absl::StatusOr<ImportedParameters> LoadImport(const ModelChoice& choice, bool loaded_before,
                                              const LoadingGang& gang);

}  // namespace trainyard
