// Chooses the checkpoints that stay, and removes the others.

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/canonical.h"
#include "common/check.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "train/checkpoint/best.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/paths.h"
#include "train/checkpoint/remove.h"
#include "train/checkpoint/save.h"

namespace trainyard {
namespace {

// Returns the paths of the `most` best checkpoints of the lineage, and of those that may be among
// them, because they could not be read.
std::set<std::string> Best(std::vector<ListedCheckpoint> checkpoints, const Lineage& lineage,
                           int64_t most, OpenedCheckpoints& opened) {
  std::set<std::string> paths;
  if (most == 0) return paths;  // Then no manifest needs to be read.
  std::erase_if(checkpoints, [&](const ListedCheckpoint& c) { return !lineage.Holds(c); });
  const BestCheckpoints best = OrderByLoss(checkpoints, opened);
  for (const ListedCheckpoint& listed : best.best_first) {
    if (int64_t(paths.size()) == most) break;
    paths.insert(listed.path);
  }
  for (const auto& [listed, why] : best.unreadable) {
    if (!SaysThatItIsNotGood(why)) paths.insert(listed.path);
  }
  return paths;
}

// Returns the checkpoints to remove, oldest first, so that after an interruption the newer ones are
// still there.
std::vector<std::string> Superfluous(const std::vector<ListedCheckpoint>& newest_first,
                                     const Lineage& lineage, const Retention& retention,
                                     OpenedCheckpoints& opened) {
  std::vector<std::string> paths;
  const std::set<std::string> best = Best(newest_first, lineage, retention.keep_best, opened);
  int64_t kept = 0;
  for (const ListedCheckpoint& listed : newest_first) {
    if (kept < retention.keep && lineage.Holds(listed) && opened.Of(listed.path).ok()) {
      ++kept;
      continue;
    }
    if (best.contains(listed.path)) continue;
    // No checkpoint is removed before `keep` newer good ones are kept: a checkpoint that this host
    // could not read, or took for damaged and left outside the lineage, may be good. Half-written
    // checkpoints are removed earlier, except one that is being written now.
    if (kept == retention.keep || (kept > 0 && !listed.complete)) paths.push_back(listed.path);
  }
  std::reverse(paths.begin(), paths.end());
  return paths;
}

// Returns the bases of earlier attempts that no checkpoint names.
absl::StatusOr<std::vector<std::string>> UnnamedBases(const std::string& directory, int64_t epoch,
                                                      const std::vector<int64_t>& epochs,
                                                      const std::vector<ListedCheckpoint>& listed,
                                                      const OpenedCheckpoints& opened) {
  std::set<std::string> bases;
  for (const int64_t earlier : epochs) {
    const std::string path = BasePath(directory, earlier);
    if (earlier < epoch && Exists(path)) bases.insert(path);
  }
  if (bases.empty()) return std::vector<std::string>();
  for (const ListedCheckpoint& checkpoint : listed) {
    if (!checkpoint.complete) continue;
    std::optional<std::string> named;
    if (const auto* facts = opened.Find(checkpoint.path)) {
      if (facts->base) named = BasePath(directory, facts->base->epoch);
    } else {
      ASSIGN_OR_RETURN(named, BaseOf(checkpoint.path));
    }
    if (named) bases.erase(*named);
  }
  return std::vector<std::string>(bases.begin(), bases.end());
}

// Removes a directory, its files, and the directories in it with their files.
absl::Status RemoveWithFiles(const std::string& directory, Storage& storage) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListCanonical(directory));
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(directory, "/", name);
    std::error_code error;  // Then it is no directory.
    const bool within = std::filesystem::is_directory(std::filesystem::symlink_status(path, error));
    RETURN_IF_ERROR(within ? RemoveWithFiles(path, storage) : storage.Remove(path));
  }
  return storage.Remove(directory);
}

}  // namespace

absl::Status RemoveCheckpoint(const std::string& path, Storage& storage) {
  if (!Exists(path)) return absl::OkStatus();
  std::error_code error;
  // What somebody has moved elsewhere stays there.
  if (std::filesystem::is_symlink(path, error)) return storage.Remove(path);
  if (const std::string manifest = absl::StrCat(path, "/", kManifestName); Exists(manifest)) {
    RETURN_IF_ERROR(storage.Remove(manifest));
    RETURN_IF_ERROR(storage.SyncDirectory(path));
  }
  return RemoveWithFiles(path, storage);
}

absl::Status ApplyRetention(const std::string& directory, const Retention& retention,
                            Storage& storage, OpenedCheckpoints& opened,
                            std::vector<ListedCheckpoint>* left) {
  CHECK(retention.keep >= 1) << retention.keep;
  ASSIGN_OR_RETURN(JobDirectory found, ListJobDirectory(directory));
  ASSIGN_OR_RETURN(const Lineage lineage, ReadLineage(directory, found));
  std::vector<ListedCheckpoint>& listed = found.checkpoints;
  absl::Status removed;
  for (const std::string& path : Superfluous(listed, lineage, retention, opened)) {
    // Checked again each time: the successor may begin while this superseded attempt is still
    // removing.
    if (!CheckNewest(directory, retention.epoch).ok()) break;
    const absl::Status status = RemoveCheckpoint(path, storage);
    removed.Update(status);
    if (!status.ok()) continue;
    std::erase_if(listed, [&](const ListedCheckpoint& c) { return c.path == path; });
  }
  const auto bases = UnnamedBases(directory, retention.epoch, found.epochs, listed, opened);
  for (const std::string& path : bases.value_or(std::vector<std::string>())) {
    if (!removed.ok() || !CheckNewest(directory, retention.epoch).ok()) break;
    removed = RemoveCheckpoint(path, storage);
  }
  // Directories of attempts that chose nothing. A directory that has a file stays.
  for (const int64_t epoch : found.epochs) {
    if (epoch > retention.epoch) break;  // Superseded.
    if (epoch == retention.epoch || lineage.Holds(epoch, 0)) continue;
    storage.Remove(EpochPath(directory, epoch)).IgnoreError();
  }
  if (left == nullptr) return removed;
  std::erase_if(listed, [&](const ListedCheckpoint& c) { return !lineage.Holds(c); });
  *left = std::move(listed);
  return removed;
}

absl::Status ApplyRetention(const std::string& directory, const Retention& retention,
                            Storage& storage) {
  OpenedCheckpoints opened;
  return ApplyRetention(directory, retention, storage, opened, nullptr);
}

}  // namespace trainyard
