#include "train/start/start_point.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "train/checkpoint/claim.h"
#include "train/checkpoint/paths.h"
#include "train/checkpoint/recorded_job.h"
#include "train/config/continued_run.h"

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
                                       const Roots& roots, bool continues) {
  if (!rank.claimed) {
    return continues ? roots.FindDirectory(directory) : roots.MakeDirectory(directory);
  }
  ASSIGN_OR_RETURN(std::string found, roots.FindDirectory(directory));
  if (Exists(absl::StrCat(found, "/", kOwnerName))) return found;
  return StorageFault(found, absl::StrCat("has no ", kOwnerName));
}

// Reads the rest of what is known of the run in start.directory.
absl::Status Survey(const RankConfig& rank, StartPoint& start) {
  ASSIGN_OR_RETURN(const std::optional<Owner> owner, FindOwner(start.directory));
  const bool mine = owner && owner->job_id == rank.job_id;
  ASSIGN_OR_RETURN(start.after_epoch, mine ? owner->after_epoch : NewestEpoch(start.directory));
  ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> loadable,
                   LoadableCheckpoints(start.directory));
  start.candidates = PathsOfComplete(loadable);
  ASSIGN_OR_RETURN(start.lineage, ReadLineage(start.directory));
  Lineage lineage = start.lineage;
  // The newest checkpoint was not trained on what other jobs may have read since.
  std::erase_if(lineage.stretches, [&](const Stretch& stretch) {
    return !loadable.empty() && stretch.epoch > loadable.front().epoch &&
           stretch.epoch <= start.after_epoch;
  });
  ASSIGN_OR_RETURN(start.inputs, ReadInputs(start.directory, lineage));
  return absl::OkStatus();
}

// Leaves out the files of the run that the job may replace by others. Later attempts of the job
// compare them.
void Allow(const std::optional<ContinuesConfig>& continues, const RankConfig& rank,
           StartPoint& start) {
  if (!continues || !start.inputs) return;
  if (!rank.alone && start.inputs->epoch > start.after_epoch) return;
  // Files of a field that is not recorded are new, and their tokens unknown.
  std::erase_if(start.inputs->files, [&](const InputFingerprint& file) {
    return IsAllowed(continues->allow, file.field);
  });
}

}  // namespace

absl::StatusOr<StartPoint> LookAtRun(const std::string& directory, const RankConfig& rank,
                                     const Roots& roots,
                                     const std::optional<ContinuesConfig>& continues) {
  StartPoint start;
  auto found = roots.FindDirectory(directory);
  absl::Status status = found.status();
  if (found.ok()) {
    start.directory = *std::move(found);
    RETURN_IF_ERROR(CheckOwner(start.directory, rank.job_id, continues ? continues->job : ""));
    status = Survey(rank, start);
  }
  if (status.ok() && start.candidates.empty()) {
    status = absl::FailedPreconditionError(
        absl::StrCat(start.directory, ": wanted a checkpoint to go on from, found none"));
  }
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat("checkpoint.directory: ", status.message()));
  }
  Allow(continues, rank, start);
  return start;
}

absl::StatusOr<StartPoint> BeginAttempt(const std::string& directory, const RankConfig& rank,
                                        const Roots& roots, Storage& storage,
                                        const std::optional<ContinuesConfig>& continues) {
  StartPoint start;
  const auto found = FindOrMake(directory, rank, roots, continues.has_value());
  if (!found.ok()) {
    const absl::Status status = OfUsed(directory, rank, found.status());
    if (IsStorageFault(status) || rank.claimed) return status;
    return absl::Status(status.code(), absl::StrCat("checkpoint.directory: ", status.message()));
  }
  start.directory = *found;
  absl::Status status = ClaimDirectory(start.directory, rank.job_id, rank.epoch, storage,
                                       continues ? continues->job : "");
  if (status.ok()) status = Survey(rank, start);
  RETURN_IF_ERROR(OfUsed(start.directory, rank, status));
  const bool saved = continues || rank.recorded_step > 0 || start.lineage.stretches.size() > 1;
  if (saved && start.candidates.empty()) {
    return StorageFault(start.directory, "holds no checkpoint any more");
  }
  Allow(continues, rank, start);
  return start;
}

absl::Status ContinueFrom(const std::optional<Continued>& continued, const RankConfig& rank,
                          StartPoint& start, Storage& storage,
                          const std::optional<InitialisedFrom>& initialised_from) {
  absl::Status written =
      WriteLineage(start.directory, rank.epoch, continued, storage, initialised_from);
  if (written.ok() && !start.job.empty()) {
    written = WriteRecordedJob(start.directory, rank.epoch, {rank.job_id, start.job}, storage);
  }
  if (written.ok() && start.inputs && start.inputs->epoch == rank.epoch) {
    written = WriteInputs(start.directory, *start.inputs, storage);
  }
  RETURN_IF_ERROR(OfUsed(start.directory, rank, written));
  ASSIGN_OR_RETURN(start.lineage, ReadLineage(start.directory));
  std::vector<AttemptStart>& starts = start.earlier_starts;
  starts = StartsAfter(start.lineage, std::max(rank.recorded_epoch, start.after_epoch));
  // The history of other jobs stays theirs.
  std::erase_if(start.lineage.stretches,
                [&](const Stretch& stretch) { return stretch.epoch <= start.after_epoch; });
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
