#include "train/checkpoint/claim.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/canonical.h"
#include "common/files.h"
#include "common/json.h"
#include "common/json_fields.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/paths.h"

namespace trainyard {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kOwnerVersion = 1;
constexpr uint64_t kMaxClaimBytes = 64 << 10;
constexpr absl::string_view kTemporaryPrefix = ".owner-";

std::string OwnerPath(const std::string& directory, int64_t number) {
  return number == 1 ? absl::StrCat(directory, "/", kOwnerName)
                     : absl::StrCat(directory, "/owner-", number, ".json");
}

absl::Status Taken(const std::string& directory, absl::string_view by) {
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint.directory: ", directory, " ", by,
                   "; wanted an empty directory or this job's own"));
}

absl::Status BelongsTo(const std::string& directory, const std::string& owner,
                       const std::string& job_id, const std::string& continues) {
  const std::string wanted =
      continues.empty() ? job_id : absl::StrCat(continues, ", whose run this job continues");
  const absl::Status taken =
      Taken(directory, absl::StrCat("belongs to job ", owner, ", not ", wanted));
  return absl::Status(taken.code(), absl::StrCat(taken.message(),
                                                 ". To go on with the run there: trainyard submit ",
                                                 "--continue ", directory));
}

absl::StatusOr<Owner> ReadOwner(const std::string& directory, const std::string& path) {
  const absl::StatusOr<std::string> text = ReadCanonical(path, kMaxClaimBytes);
  if (absl::IsFailedPrecondition(text.status())) {  // Not a file, or one that no job has written.
    return Taken(directory, absl::StrCat("has a bad owner file (", text.status().message(), ")"));
  }
  RETURN_IF_ERROR(text.status());
  const OrderedJson json = ParseJson<OrderedJson>(*text);
  const auto number = [&](const char* name, int64_t absent) {
    int64_t value = absent;
    const bool read = !json.contains(name) || ReadInteger(json[name], value);
    return read ? value : -1;
  };
  if (json.is_object() && json.contains("job_id") && json["job_id"].is_string()) {
    const Owner owner{.job_id = json["job_id"].get<std::string>(),
                      .number = number("number", 1),
                      .after_epoch = number("after_epoch", 0)};
    if (owner.number >= 1 && owner.after_epoch >= 0) return owner;
  }
  return Taken(directory, absl::StrCat("has an owner file that cannot be read (", path, ")"));
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

// Writes owner files for one attempt of a job.
class OwnerWriter {
 public:
  // No two attempts of any job use the same temporary file.
  OwnerWriter(const std::string& directory, const std::string& job_id, int64_t epoch,
              Storage& storage)
      : directory_(directory),
        temporary_(absl::StrCat(directory, "/", kTemporaryPrefix,
                                Sha256Of(absl::StrCat(job_id, "/", epoch)).substr(0, 16))),
        storage_(storage) {}

  // Makes this owner the one of its number, unless there is another one.
  absl::Status Decide(const Owner& owner) {
    RETURN_IF_ERROR(Write(owner));
    const absl::Status linked = storage_.Link(temporary_, OwnerPath(directory_, owner.number));
    if (!linked.ok() && !absl::IsAlreadyExists(linked)) return linked;
    RETURN_IF_ERROR(storage_.Remove(temporary_));
    return storage_.SyncDirectory(directory_);
  }

  absl::Status Publish(const Owner& owner) {
    RETURN_IF_ERROR(Write(owner));
    RETURN_IF_ERROR(storage_.Rename(temporary_, OwnerPath(directory_, 1)));
    return storage_.SyncDirectory(directory_);
  }

 private:
  absl::Status Write(const Owner& owner) {
    OrderedJson json = {{"version", kOwnerVersion}, {"job_id", owner.job_id}};
    if (owner.number > 1) json["number"] = owner.number, json["after_epoch"] = owner.after_epoch;
    const std::string text = JsonText(json) + "\n";
    ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file, storage_.Create(temporary_));
    RETURN_IF_ERROR(file->Append(text.data(), text.size()));
    return file->Sync();
  }

  const std::string& directory_;
  const std::string temporary_;
  Storage& storage_;
};

// Returns the owner of a directory that has one.
absl::StatusOr<Owner> OwnerOf(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::optional<Owner> owner, FindOwner(directory));
  if (!owner) return Taken(directory, absl::StrCat("has no ", kOwnerName, " any more"));
  return *owner;
}

}  // namespace

absl::StatusOr<std::optional<Owner>> FindOwner(const std::string& directory) {
  if (!Exists(OwnerPath(directory, 1))) return std::nullopt;
  ASSIGN_OR_RETURN(Owner owner, ReadOwner(directory, OwnerPath(directory, 1)));
  for (;;) {
    const int64_t number = owner.number + 1;
    absl::StatusOr<Owner> next = ReadOwner(directory, OwnerPath(directory, number));
    if (absl::IsNotFound(next.status())) return owner;
    RETURN_IF_ERROR(next.status());
    owner = *std::move(next);
    owner.number = number;
    owner.is_published = false;
  }
}

absl::Status CheckOwner(const std::string& directory, const std::string& job_id,
                        const std::string& continues) {
  ASSIGN_OR_RETURN(const std::optional<Owner> owner, FindOwner(directory));
  if (!owner || owner->job_id == job_id || owner->job_id == continues) return absl::OkStatus();
  return BelongsTo(directory, owner->job_id, job_id, continues);
}

absl::Status ClaimDirectory(const std::string& directory, const std::string& job_id, int64_t epoch,
                            Storage& storage, const std::string& continues) {
  OwnerWriter writer(directory, job_id, epoch, storage);
  if (!Exists(OwnerPath(directory, 1))) {
    const std::string& first = continues.empty() ? job_id : continues;
    RETURN_IF_ERROR(CheckUnowned(directory, first));
    RETURN_IF_ERROR(writer.Decide({.job_id = first}));
  }
  ASSIGN_OR_RETURN(Owner owner, OwnerOf(directory));
  if (owner.job_id != job_id && !continues.empty() && owner.job_id == continues) {
    // The run's attempts must see that a later one has begun.
    if (const absl::Status newer = CheckNewest(directory, epoch - 1); !newer.ok()) {
      // The attempt that has begun may be that of a job which took the directory just now.
      ASSIGN_OR_RETURN(owner, OwnerOf(directory));
      return owner.job_id == continues ? newer
                                       : BelongsTo(directory, owner.job_id, job_id, continues);
    }
    ASSIGN_OR_RETURN(const int64_t newest, NewestEpoch(directory));
    RETURN_IF_ERROR(
        writer.Decide({.job_id = job_id, .number = owner.number + 1, .after_epoch = newest}));
    ASSIGN_OR_RETURN(owner, OwnerOf(directory));
  }
  if (owner.job_id != job_id) return BelongsTo(directory, owner.job_id, job_id, continues);
  if (!owner.is_published) RETURN_IF_ERROR(writer.Publish(owner));
  return BeginEpoch(directory, epoch, storage);
}

}  // namespace trainyard
