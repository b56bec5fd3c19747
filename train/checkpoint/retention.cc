// Which checkpoints stay, and how the others go.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/remove.h"
#include "train/checkpoint/save.h"

namespace trainyard {
namespace {

bool LaterEpochBegan(const std::vector<std::string>& names, int64_t epoch) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const std::optional<int64_t> other = ParseEpochName(name);
    return other && *other > epoch;
  });
}

bool IsProtected(const ListedCheckpoint& listed, const Retention& retention) {
  return std::any_of(
      retention.protect.begin(), retention.protect.end(), [&](const std::string& path) {
        return ParseCheckpointPath(path) == std::make_pair(listed.epoch, listed.step);
      });
}

// What goes, oldest first, so that an interruption leaves the newer ones.
std::vector<std::string> Superfluous(const std::vector<ListedCheckpoint>& newest_first,
                                     const Retention& retention) {
  std::vector<std::string> paths;
  int64_t kept = 0;
  for (const ListedCheckpoint& listed : newest_first) {
    // Nothing goes before a newer good one stays; so a checkpoint that is just being written is
    // safe, too.
    if (kept == 0) {
      kept += listed.complete && Checkpoint::Open(listed.path).ok();
      continue;
    }
    if (IsProtected(listed, retention)) continue;
    if (kept < retention.keep && listed.complete && Checkpoint::Open(listed.path).ok()) {
      ++kept;
    } else {
      paths.push_back(listed.path);
    }
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
  ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> listed, ListCheckpoints(directory));
  for (const std::string& path : Superfluous(listed, retention)) {
    // Looked at again each time: the successor may begin while this attempt, superseded, still
    // removes.
    ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
    if (LaterEpochBegan(names, retention.epoch)) return absl::OkStatus();
    RETURN_IF_ERROR(RemoveCheckpoint(path, storage));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
  if (LaterEpochBegan(names, retention.epoch)) return absl::OkStatus();
  for (const std::string& name : names) {
    const std::optional<int64_t> epoch = ParseEpochName(name);
    const std::string path = absl::StrCat(directory, "/", name);
    if (!epoch || *epoch == retention.epoch) continue;
    ASSIGN_OR_RETURN(const std::vector<std::string> left, ListDirectory(path));
    if (left.empty()) RETURN_IF_ERROR(storage.Remove(path));
  }
  return absl::OkStatus();
}

}  // namespace trainyard
