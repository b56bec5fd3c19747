#include "train/start/continued.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "train/checkpoint/inputs.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/recorded_job.h"
#include "train/config/continued_run.h"
#include "train/config/validate.h"

namespace trainyard {
namespace {

// Returns the job with what the manifest says of the run that wrote the checkpoint. Its model is
// compared when it is loaded.
JobConfig AsInManifest(const RunState& state, JobConfig job) {
  job.seed = state.seed;
  job.deterministic = state.deterministic;
  if (state.sequence > 0) job.batch.sequence = state.sequence;
  const bool even = state.step > 0 && state.data_position % state.step == 0;
  if (even && state.data_position > 0) job.batch.global = state.data_position / state.step;
  return job;
}

std::string DirectoryOf(const Checkpoint& checkpoint) {
  return std::filesystem::path(checkpoint.path()).parent_path().parent_path().string();
}

// Files that an attempt recorded are compared later. Of a path without a record nobody knows
// whether it leads to the same samples.
absl::Status JudgePaths(const std::string& directory, std::vector<RunChange>& changes) {
  ASSIGN_OR_RETURN(const std::optional<RecordedInputs> inputs, ReadInputs(directory, Lineage()));
  for (RunChange& change : changes) {
    const bool recorded =
        inputs && std::any_of(inputs->files.begin(), inputs->files.end(),
                              [&](const auto& file) { return file.field == change.field; });
    if (NamesData(change) && !recorded) change.effect = ChangeEffect::kSamples;
  }
  return absl::OkStatus();
}

constexpr char kEffect[] = "only what the checkpoint itself says of its run is compared";

}  // namespace

absl::StatusOr<JobConfig> JobOfRun(const Checkpoint& checkpoint, const JobConfig& now) {
  const std::string directory = DirectoryOf(checkpoint);
  const int64_t epoch = checkpoint.state().epoch;
  ASSIGN_OR_RETURN(const std::optional<RecordedJob> record, ReadRecordedJob(directory, epoch));
  if (!record) {
    LogWarning("job_not_recorded",
               {{"directory", directory}, {"epoch", epoch}, {"effect", kEffect}});
    return AsInManifest(checkpoint.state(), now);
  }
  absl::StatusOr<JobConfig> job = ParseAndValidateJob(record->job);
  if (job.ok()) return job;
  LogWarning("recorded_job_unusable", {{"directory", directory},
                                       {"epoch", epoch},
                                       {"error", job.status().message()},
                                       {"effect", kEffect}});
  return AsInManifest(checkpoint.state(), now);
}

absl::Status CheckContinued(const Checkpoint& checkpoint, const JobConfig& job,
                            const RankConfig& rank) {
  const RunState& state = checkpoint.state();
  if (state.job_id == rank.job_id && !rank.alone) return absl::OkStatus();
  if (state.job_id != rank.job_id) RETURN_IF_ERROR(CheckLonger(state.step, job));
  ASSIGN_OR_RETURN(const JobConfig before, JobOfRun(checkpoint, job));
  std::vector<RunChange> changes = ChangesOfRun(before, job);
  RETURN_IF_ERROR(JudgePaths(DirectoryOf(checkpoint), changes));
  RETURN_IF_ERROR(
      CheckChanges(changes, job.continues ? job.continues->allow : std::vector<std::string>()));
  for (const RunChange& change : changes) {
    LogWarning("run_changed", {{"change", Described(change)}});
  }
  return absl::OkStatus();
}

}  // namespace trainyard
