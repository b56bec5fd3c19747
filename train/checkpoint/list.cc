// Lists the content of a job's checkpoint directory.

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/canonical.h"
#include "common/files.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "train/checkpoint/best.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/paths.h"

namespace trainyard {
namespace {

// An error if the manifest cannot be looked at: such a checkpoint must not pass for half-written.
absl::StatusOr<bool> HasManifest(const std::string& checkpoint) {
  const std::string path = absl::StrCat(checkpoint, "/", kManifestName);
  std::error_code error;
  const bool exists = std::filesystem::exists(path, error);
  if (error) return ErrnoStatus(error.value(), "look at", path);
  return exists;
}

absl::StatusOr<Checkpoint> OpenAndUse(const std::string& path, const Roots& roots,
                                      const UseCheckpoint& use) {
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(path, roots));
  RETURN_IF_ERROR(use(checkpoint));
  return checkpoint;
}

absl::StatusOr<std::vector<std::string>> FindBest(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> loadable, LoadableCheckpoints(directory));
  OpenedCheckpoints opened;
  const BestCheckpoints best = OrderByLoss(loadable, opened);
  std::vector<std::string> paths;
  std::string unread;
  for (const auto& [listed, why] : best.unreadable) {
    if (SaysThatItIsNotGood(why)) {
      paths.push_back(listed.path);  // The search for a good one says why.
    } else if (!best.best_first.empty()) {
      LogWarning("may_not_be_the_best",
                 {{"because",
                   absl::StrCat("the loss of ", listed.path, " is not known: ", why.message())}});
    }
    absl::StrAppend(&unread, "; not read: ", why.message());
  }
  if (best.best_first.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "no checkpoint in ", directory, " has a validation loss, so none is known to be the best; ",
        "wanted those of a job with validation and checkpoint.keep_best; ", directory,
        " names the newest checkpoint", unread));
  }
  for (const ListedCheckpoint& listed : best.best_first) paths.push_back(listed.path);
  return paths;
}

}  // namespace

bool SaysThatItIsNotGood(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
}

absl::StatusOr<std::vector<int64_t>> ListEpochs(const std::string& directory) {
  std::vector<int64_t> epochs;
  const absl::StatusOr<std::vector<std::string>> names = ListCanonical(directory);
  if (absl::IsNotFound(names.status())) return epochs;
  RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    if (const auto epoch = ParseEpochName(name)) epochs.push_back(*epoch);
  }
  std::sort(epochs.rbegin(), epochs.rend());
  return epochs;
}

absl::StatusOr<JobDirectory> ListJobDirectory(const std::string& directory) {
  JobDirectory found;
  ASSIGN_OR_RETURN(found.epochs, ListEpochs(directory));
  for (const int64_t epoch : found.epochs) {
    const absl::StatusOr<std::vector<std::string>> steps =
        ListCanonical(EpochPath(directory, epoch));
    if (absl::IsNotFound(steps.status())) continue;  // Another attempt has just removed it.
    RETURN_IF_ERROR(steps.status());
    for (const std::string& step_name : *steps) {
      const std::optional<int64_t> step = ParseStepName(step_name);
      if (!step) continue;
      const std::string path = CheckpointPath(directory, epoch, *step);
      ASSIGN_OR_RETURN(const bool complete, HasManifest(path));
      found.checkpoints.push_back({path, epoch, *step, complete});
    }
  }
  std::sort(found.checkpoints.begin(), found.checkpoints.end(),
            [](const ListedCheckpoint& a, const ListedCheckpoint& b) {
              return std::tie(a.epoch, a.step) > std::tie(b.epoch, b.step);
            });
  return found;
}

absl::StatusOr<std::vector<ListedCheckpoint>> ListCheckpoints(const std::string& directory) {
  ASSIGN_OR_RETURN(JobDirectory found, ListJobDirectory(directory));
  return std::move(found.checkpoints);
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

absl::StatusOr<std::optional<std::string>> BaseOf(const std::string& path) {
  const std::string manifest = absl::StrCat(path, "/", kManifestName);
  ASSIGN_OR_RETURN(const std::string text, ReadCanonical(manifest, kManifestLimitBytes));
  ASSIGN_OR_RETURN(const Manifest parsed, ParseManifest(text));
  if (!parsed.state.base) return std::nullopt;
  const std::filesystem::path job = std::filesystem::path(path).parent_path().parent_path();
  return BasePath(job.string(), parsed.state.base->epoch);
}

absl::StatusOr<Checkpoint> ReadPastCache(const std::string& path, const Roots& roots,
                                         const UseCheckpoint& use) {
  const absl::StatusOr<Checkpoint> checkpoint = OpenAndUse(path, roots, use);
  if (checkpoint.ok() || absl::IsInvalidArgument(checkpoint.status())) return checkpoint;
  // The bad bytes may be only in this machine's memory. Another host may have spelt the path.
  const std::string canonical = roots.FindDirectory(path).value_or(path);
  DropCachedFiles(canonical);
  if (const auto base = BaseOf(canonical); base.ok() && *base) DropCachedFiles(**base);
  return OpenAndUse(path, roots, use);
}

absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& path, const Roots& roots,
                                          const UseCheckpoint& use) {
  absl::StatusOr<Checkpoint> checkpoint = ReadPastCache(path, roots, use);
  const absl::Status& status = checkpoint.status();
  if (!absl::IsInternal(status) && !absl::IsPermissionDenied(status)) return checkpoint;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(),
                                   "; an older checkpoint is not taken for that. If no host can "
                                   "read it, move ",
                                   path, " away"));
}

absl::StatusOr<ChosenCheckpoint> FirstGood(const std::vector<std::string>& candidates,
                                           const ReadCandidate& read) {
  ChosenCheckpoint chosen;
  for (const std::string& path : candidates) {
    absl::StatusOr<Checkpoint> checkpoint = read(path);
    if (checkpoint.ok()) {
      chosen.checkpoint = *std::move(checkpoint);
      return chosen;
    }
    if (!SaysThatItIsNotGood(checkpoint.status())) return checkpoint.status();
    chosen.refused.push_back(std::string(checkpoint.status().message()));
  }
  if (candidates.empty()) return chosen;
  if (candidates.size() == 1) return absl::DataLossError(chosen.refused[0]);
  return absl::DataLossError(absl::StrCat("none of ", candidates.size(), " checkpoints is good: ",
                                          absl::StrJoin(chosen.refused, "; ")));
}

absl::StatusOr<NamedDirectory> FindNamed(const std::string& path, const Roots& roots) {
  absl::StatusOr<std::string> found = roots.FindDirectory(path);
  if (found.ok()) return NamedDirectory{.directory = *std::move(found)};
  std::filesystem::path named = path;
  if (!named.has_filename()) named = named.parent_path();  // "DIR/best/"
  if (!absl::IsNotFound(found.status()) || named.filename() != kBestName) return found.status();
  const std::string parent = named.parent_path().string();
  const auto directory = roots.FindDirectory(parent.empty() ? "." : parent);
  // Whoever misspells another path is not told of checkpoints.
  if (!directory.ok() || !Exists(absl::StrCat(*directory, "/", kOwnerName))) return found.status();
  return NamedDirectory{.directory = *directory, .best = true};
}

absl::StatusOr<std::vector<std::string>> FindCheckpoints(const std::string& path,
                                                         const Roots& roots) {
  ASSIGN_OR_RETURN(const NamedDirectory found, FindNamed(path, roots));
  if (found.best) return FindBest(found.directory);
  const std::string& directory = found.directory;
  const std::filesystem::path named = directory;
  if (named.filename() == kBaseName && ParseEpochName(named.parent_path().filename().string())) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " holds the frozen parameters of checkpoints alone; wanted one of the ",
                     "checkpoints, which name it, or the job's checkpoint.directory"));
  }
  if (Exists(absl::StrCat(directory, "/", kManifestName))) {
    return std::vector<std::string>{directory};
  }
  ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> loadable, LoadableCheckpoints(directory));
  if (!loadable.empty()) return PathsOfComplete(loadable);
  const bool of_hugging_face = Exists(absl::StrCat(directory, "/config.json"));
  return absl::NotFoundError(absl::StrCat(
      "no complete checkpoint in ", path, "; wanted a checkpoint (a directory with ", kManifestName,
      ") or a job's checkpoint.directory",
      of_hugging_face
          ? absl::StrCat("; trainyard import ", path, " --to CKPT makes one of this model")
          : ""));
}

absl::StatusOr<ChosenCheckpoint> FindCheckpoint(const std::string& path, const UseCheckpoint& use,
                                                const Roots& roots) {
  ASSIGN_OR_RETURN(const std::vector<std::string> candidates, FindCheckpoints(path, roots));
  return FirstGood(candidates, [&](const std::string& candidate) {
    return ReadCheckpoint(candidate, roots, use);
  });
}

}  // namespace trainyard
