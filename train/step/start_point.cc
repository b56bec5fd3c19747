#include "train/step/start_point.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "train/checkpoint/paths.h"
#include "train/checkpoint/save.h"

namespace trainyard {
namespace {

constexpr size_t kMaxStarts = 64;  // Reported to the controller in one message.

// If this host cannot use a directory that the job has used before, the host has failed. A full
// disk counts as a failure of the host from the first attempt on, because the job can wait for
// space.
absl::Status OfUsed(const std::string& directory, const RankConfig& rank,
                    const absl::Status& status) {
  if (status.ok() || IsSuperseded(status) || IsStorageFault(status)) return status;
  if (absl::IsResourceExhausted(status)) return StorageFull(directory, status);
  if (!rank.claimed) return status;
  return StorageFault(directory, absl::StrCat("cannot be used (", status.message(), ")"));
}

absl::StatusOr<std::string> FindOrMake(const std::string& directory, const RankConfig& rank,
                                       const Roots& roots) {
  if (!rank.claimed) return roots.MakeDirectory(directory);
  ASSIGN_OR_RETURN(std::string found, roots.FindDirectory(directory));
  if (Exists(absl::StrCat(found, "/", kOwnerName))) return found;
  return StorageFault(found, absl::StrCat("has no ", kOwnerName));
}

// Returns the paths of the loadable checkpoints, newest first.
absl::StatusOr<std::vector<std::string>> Candidates(const std::string& directory,
                                                    const RankConfig& rank) {
  ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> loadable, LoadableCheckpoints(directory));
  if (!loadable.empty()) return PathsOfComplete(loadable);
  ASSIGN_OR_RETURN(const Lineage lineage, ReadLineage(directory));
  if (rank.recorded_step == 0 && lineage.stretches.size() < 2) return std::vector<std::string>();
  return StorageFault(directory, "holds no checkpoint any more");
}

}  // namespace

absl::StatusOr<StartPoint> BeginAttempt(const std::string& directory, const RankConfig& rank,
                                        const Roots& roots, Storage& storage) {
  StartPoint start;
  const auto found = FindOrMake(directory, rank, roots);
  if (!found.ok()) {
    const absl::Status status = OfUsed(directory, rank, found.status());
    if (IsStorageFault(status) || rank.claimed) return status;
    return absl::Status(status.code(), absl::StrCat("checkpoint.directory: ", status.message()));
  }
  start.directory = *found;
  const absl::Status claimed = ClaimDirectory(start.directory, rank.job_id, rank.epoch, storage);
  RETURN_IF_ERROR(OfUsed(start.directory, rank, claimed));
  absl::StatusOr<std::vector<std::string>> candidates = Candidates(start.directory, rank);
  RETURN_IF_ERROR(OfUsed(start.directory, rank, candidates.status()));
  start.candidates = *std::move(candidates);
  auto inputs = ReadInputs(start.directory);
  RETURN_IF_ERROR(OfUsed(start.directory, rank, inputs.status()));
  start.inputs = *std::move(inputs);
  return start;
}

absl::Status ContinueFrom(const std::optional<Continued>& continued, const RankConfig& rank,
                          StartPoint& start, Storage& storage,
                          const std::optional<InitialisedFrom>& initialised_from) {
  absl::Status written =
      WriteLineage(start.directory, rank.epoch, continued, storage, initialised_from);
  if (written.ok() && start.inputs && start.inputs->epoch == rank.epoch) {
    written = WriteInputs(start.directory, *start.inputs, storage);
  }
  RETURN_IF_ERROR(OfUsed(start.directory, rank, written));
  ASSIGN_OR_RETURN(start.lineage, ReadLineage(start.directory));
  std::vector<AttemptStart>& starts = start.earlier_starts;
  starts = StartsAfter(start.lineage, rank.recorded_epoch);
  // The first start says from which step on everything is new.
  if (starts.size() > kMaxStarts) starts.erase(starts.begin() + 1, starts.end() - kMaxStarts + 1);
  start.history_after = rank.history_after;
  if (starts.empty()) return absl::OkStatus();
  // Later steps at the controller come from attempts whose steps were run again.
  start.history_after = std::min(start.history_after, int64_t(starts.front().step));
  starts.pop_back();  // This attempt.
  return absl::OkStatus();
}

}  // namespace trainyard
