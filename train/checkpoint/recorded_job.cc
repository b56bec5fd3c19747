#include "train/checkpoint/recorded_job.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/canonical.h"
#include "common/json.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "train/checkpoint/paths.h"

namespace trainyard {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kJobVersion = 1;
constexpr uint64_t kMaxJobBytes = 4 << 20;

std::string PathOf(const std::string& directory, int64_t epoch) {
  return absl::StrCat(EpochPath(directory, epoch), "/", kRecordedJobName);
}

// INVALID_ARGUMENT: the text is damaged.
absl::StatusOr<RecordedJob> Parse(const std::string& text) {
  const OrderedJson json = ParseJson<OrderedJson>(text);
  int64_t version = 0;
  const bool versioned =
      json.is_object() && json.contains("version") && ReadInteger(json["version"], version);
  if (versioned && version > kJobVersion) {
    return absl::UnimplementedError(absl::StrCat(kRecordedJobName, ": wanted version ", kJobVersion,
                                                 ", found ", version,
                                                 ": run the newer Trainyard that wrote it"));
  }
  if (!versioned || !json.contains("job_id") || !json["job_id"].is_string() ||
      !json.contains("job") || !json["job"].is_object()) {
    return absl::InvalidArgumentError("not a record of a job");
  }
  return RecordedJob{json["job_id"].get<std::string>(), JsonText(json["job"])};
}

}  // namespace

absl::StatusOr<std::optional<RecordedJob>> ReadRecordedJob(const std::string& directory,
                                                           int64_t epoch) {
  const std::string path = PathOf(directory, epoch);
  const absl::StatusOr<std::string> text = ReadCanonical(path, kMaxJobBytes);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  absl::StatusOr<RecordedJob> job = text.ok() ? Parse(*text) : text.status();
  if (job.ok()) return *std::move(job);
  const absl::Status& status = job.status();
  // Another kind of file has the name (FAILED_PRECONDITION), or the text is damaged.
  if (!absl::IsInvalidArgument(status) && !absl::IsFailedPrecondition(status)) return status;
  LogWarning("recorded_job_unreadable", {{"file", path}, {"error", status.message()}});
  return std::nullopt;
}

absl::StatusOr<std::optional<RecordedJob>> RecordedJobOf(const std::string& checkpoint) {
  const auto place = ParseCheckpointPath(checkpoint);
  if (!place) return std::nullopt;
  const std::filesystem::path run = std::filesystem::path(checkpoint).parent_path().parent_path();
  return ReadRecordedJob(run.string(), place->first);
}

absl::Status WriteRecordedJob(const std::string& directory, int64_t epoch, const RecordedJob& job,
                              Storage& storage) {
  const std::string path = PathOf(directory, epoch), temporary = path + ".tmp";
  const OrderedJson json = {
      {"version", kJobVersion}, {"job_id", job.job_id}, {"job", ParseJson<OrderedJson>(job.job)}};
  const std::string text = JsonText(json, 1) + "\n";
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file, storage.Create(temporary));
    RETURN_IF_ERROR(file->Append(text.data(), text.size()));
    RETURN_IF_ERROR(file->Sync());
  }
  RETURN_IF_ERROR(storage.Rename(temporary, path));
  return storage.SyncDirectory(EpochPath(directory, epoch));
}

}  // namespace trainyard
