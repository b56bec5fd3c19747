// Which checkpoints stay, and how the others go.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/remove.h"
#include "train/checkpoint/save.h"

namespace trainyard {
namespace {

// What goes, oldest first, so that an interruption leaves the newer ones.
std::vector<std::string> Superfluous(const std::vector<ListedCheckpoint>& newest_first,
                                     const Lineage& lineage, const Retention& retention) {
  std::vector<std::string> paths;
  int64_t kept = 0;
  for (const ListedCheckpoint& listed : newest_first) {
    const bool counts = listed.complete && lineage.Holds(listed.epoch, listed.step) &&
                        kept < retention.keep && Checkpoint::Open(listed.path).ok();
    if (counts) {
      ++kept;
      continue;
    }
    // Nothing goes before a newer good one stays; so a checkpoint that is just being written is
    // safe, too.
    if (kept > 0) paths.push_back(listed.path);
  }
  std::reverse(paths.begin(), paths.end());
  return paths;
}

}  // namespace

absl::Status RemoveCheckpoint(const std::string& path, Storage& storage) {
  if (!Exists(path)) return absl::OkStatus();
  if (const std::string manifest = absl::StrCat(path, "/", kManifestName); Exists(manifest)) {
    RETURN_IF_ERROR(storage.Remove(manifest));
    RETURN_IF_ERROR(storage.SyncDirectory(path));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(path));
  for (const std::string& name : names)
    RETURN_IF_ERROR(storage.Remove(absl::StrCat(path, "/", name)));
  return storage.Remove(path);
}

absl::Status ApplyRetention(const std::string& directory, const Retention& retention,
                            Storage& storage) {
  CHECK(retention.keep >= 1) << retention.keep;
  ASSIGN_OR_RETURN(const Lineage lineage, ReadLineage(directory));
  ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> listed, ListCheckpoints(directory));
  for (const std::string& path : Superfluous(listed, lineage, retention)) {
    // Looked at again each time: the successor may begin while this attempt, superseded, still
    // removes.
    if (!CheckNewest(directory, retention.epoch).ok()) return absl::OkStatus();
    RETURN_IF_ERROR(RemoveCheckpoint(path, storage));
  }
  return absl::OkStatus();
}

}  // namespace trainyard
