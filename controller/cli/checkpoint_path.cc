#include "controller/cli/checkpoint_path.h"

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "train/checkpoint/load.h"

namespace trainyard::cli {

absl::StatusOr<std::string> ResolveCheckpoint(const std::string& directory) {
  if (Exists(absl::StrCat(directory, "/", kManifestName))) return directory;
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, CompleteCheckpoints(directory));
  if (!paths.empty()) return paths[0];
  return absl::NotFoundError(absl::StrCat("no complete checkpoint in ", directory,
                                          "; wanted a checkpoint (a directory with ", kManifestName,
                                          ") or a job's checkpoint.directory"));
}

}  // namespace trainyard::cli
