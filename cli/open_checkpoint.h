// Opens the checkpoint that a directory on the command line names.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cli/output.h"
#include "train/checkpoint/load.h"

namespace trainyard::cli {

// Does the same as FindCheckpoint (train/checkpoint/load.h), with a note for each newer checkpoint
// that is damaged.
absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& directory, const UseCheckpoint& use,
                                          Output& output);

}  // namespace trainyard::cli
