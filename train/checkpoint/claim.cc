// Decides which job owns a checkpoint directory. The owner file is made by link(2), which fails if
// the file exists. So if two jobs start at once, one wins.

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/canonical.h"
#include "common/files.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/save.h"

namespace trainyard {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kOwnerVersion = 1;
constexpr absl::string_view kTemporaryPrefix = ".owner-";

absl::Status Taken(const std::string& directory, absl::string_view by) {
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint.directory: ", directory, " ", by,
                   "; wanted an empty directory or this job's own"));
}

absl::Status CheckOwner(const std::string& directory, const std::string& job_id) {
  const std::string path = absl::StrCat(directory, "/", kOwnerName);
  const absl::StatusOr<std::string> text = ReadCanonical(path, 64 << 10);
  if (absl::IsFailedPrecondition(text.status())) {  // Not a file, or one that no job has written.
    return Taken(directory, absl::StrCat("has a bad owner file (", text.status().message(), ")"));
  }
  RETURN_IF_ERROR(text.status());
  const Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object() || !json.contains("job_id") || !json["job_id"].is_string()) {
    return Taken(directory, absl::StrCat("has an owner file that cannot be read (", path, ")"));
  }
  const std::string owner = json["job_id"].get<std::string>();
  if (owner == job_id) return absl::OkStatus();
  return Taken(directory, absl::StrCat("belongs to job ", owner, ", not ", job_id));
}

// Without an owner file, the checkpoints say which job owns the directory. Other content belongs to
// somebody else.
absl::Status CheckUnowned(const std::string& directory, const std::string& job_id) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListCanonical(directory));
  bool epochs = false;
  for (const std::string& name : names) {
    if (absl::StartsWith(name, kTemporaryPrefix)) continue;  // Left by an unfinished claim.
    if (!ParseEpochName(name)) return Taken(directory, absl::StrCat("holds ", name));
    epochs = true;
  }
  if (!epochs) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, CompleteCheckpoints(directory));
  if (paths.empty()) return Taken(directory, "holds checkpoints that say not whose they are");
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(path));
    if (checkpoint.state().job_id == job_id) continue;
    return Taken(directory, absl::StrCat("holds ", path, " of job ", checkpoint.state().job_id));
  }
  return absl::OkStatus();
}

absl::Status WriteOwner(const std::string& directory, const std::string& job_id, Storage& storage) {
  const std::string path = absl::StrCat(directory, "/", kOwnerName);
  const std::string temporary =
      absl::StrCat(directory, "/", kTemporaryPrefix, Sha256Of(job_id).substr(0, 16));
  const Json json = {{"version", kOwnerVersion}, {"job_id", job_id}};
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file, storage.Create(temporary));
    RETURN_IF_ERROR(file->Append(text.data(), text.size()));
    RETURN_IF_ERROR(file->Sync());
  }
  const absl::Status linked = storage.Link(temporary, path);
  if (!linked.ok() && !absl::IsAlreadyExists(linked)) return linked;
  RETURN_IF_ERROR(storage.Remove(temporary));
  RETURN_IF_ERROR(storage.SyncDirectory(directory));
  return CheckOwner(directory, job_id);
}

}  // namespace

absl::Status ClaimDirectory(const std::string& directory, const std::string& job_id, int64_t epoch,
                            Storage& storage) {
  if (Exists(absl::StrCat(directory, "/", kOwnerName))) {
    RETURN_IF_ERROR(CheckOwner(directory, job_id));
  } else {
    RETURN_IF_ERROR(CheckUnowned(directory, job_id));
    RETURN_IF_ERROR(WriteOwner(directory, job_id, storage));
  }
  return BeginEpoch(directory, epoch, storage);
}

}  // namespace trainyard
