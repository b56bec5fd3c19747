// What lies in a job's checkpoint directory.

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/paths.h"

namespace trainyard {

absl::StatusOr<std::vector<ListedCheckpoint>> ListCheckpoints(const std::string& directory) {
  std::vector<ListedCheckpoint> found;
  if (!Exists(directory)) return found;
  ASSIGN_OR_RETURN(const std::vector<std::string> epochs, ListDirectory(directory));
  for (const std::string& epoch_name : epochs) {
    const std::optional<int64_t> epoch = ParseEpochName(epoch_name);
    if (!epoch) continue;
    const absl::StatusOr<std::vector<std::string>> steps =
        ListDirectory(EpochPath(directory, *epoch));
    if (absl::IsNotFound(steps.status())) continue;  // Another attempt removed it just now.
    RETURN_IF_ERROR(steps.status());
    for (const std::string& step_name : *steps) {
      const std::optional<int64_t> step = ParseStepName(step_name);
      if (!step) continue;
      const std::string path = CheckpointPath(directory, *epoch, *step);
      found.push_back({path, *epoch, *step, Exists(absl::StrCat(path, "/", kManifestName))});
    }
  }
  std::sort(found.begin(), found.end(), [](const ListedCheckpoint& a, const ListedCheckpoint& b) {
    return std::tie(a.epoch, a.step) > std::tie(b.epoch, b.step);
  });
  return found;
}

absl::StatusOr<std::vector<std::string>> CompleteCheckpoints(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> listed, ListCheckpoints(directory));
  return PathsOfComplete(listed);
}

std::vector<std::string> PathsOfComplete(const std::vector<ListedCheckpoint>& listed) {
  std::vector<std::string> paths;
  for (const ListedCheckpoint& checkpoint : listed) {
    if (checkpoint.complete) paths.push_back(checkpoint.path);
  }
  return paths;
}

absl::StatusOr<ChosenCheckpoint> NewestGood(const std::vector<std::string>& candidates,
                                            const Roots& roots) {
  ChosenCheckpoint chosen;
  for (const std::string& path : candidates) {
    absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(path, roots);
    absl::Status status = checkpoint.status();
    if (status.ok()) status = checkpoint->Verify();
    if (status.ok()) {
      chosen.checkpoint = *std::move(checkpoint);
      return chosen;
    }
    chosen.refused.push_back(std::string(status.message()));
  }
  if (candidates.empty()) return chosen;
  return absl::DataLossError(absl::StrCat("none of ", candidates.size(), " checkpoints is good: ",
                                          absl::StrJoin(chosen.refused, "; ")));
}

absl::StatusOr<ChosenCheckpoint> FindCheckpoint(const std::string& path, const Roots& roots) {
  ASSIGN_OR_RETURN(const std::string directory, roots.FindDirectory(path));
  if (Exists(absl::StrCat(directory, "/", kManifestName))) {
    ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(directory, roots));
    return ChosenCheckpoint{std::move(checkpoint), {}};
  }
  ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> loadable, LoadableCheckpoints(directory));
  if (!loadable.empty()) return NewestGood(PathsOfComplete(loadable), roots);
  return absl::NotFoundError(absl::StrCat("no complete checkpoint in ", path,
                                          "; wanted a checkpoint (a directory with ", kManifestName,
                                          ") or a job's checkpoint.directory"));
}

}  // namespace trainyard
