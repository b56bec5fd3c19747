#include "train/checkpoint/lineage.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/canonical.h"
#include "common/epochs.h"
#include "common/json.h"
#include "common/json_fields.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "train/checkpoint/paths.h"

namespace trainyard {

template <typename V>
static void VisitFields(V& v, InitialisedFrom& from) {
  v("named", from.named), v("path", from.path), v("manifest_sha256", from.sha256);
}

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kLineageVersion = 1;
constexpr uint64_t kMaxLineageBytes = 64 << 10;
constexpr int64_t kEveryStep = std::numeric_limits<int64_t>::max();

// No other function in train/ returns these two codes.
constexpr absl::StatusCode kSupersededCode = absl::StatusCode::kAborted;
constexpr absl::StatusCode kStorageFaultCode = absl::StatusCode::kUnknown;

std::string LineagePath(const std::string& directory, int64_t epoch) {
  return absl::StrCat(EpochPath(directory, epoch), "/", kLineageName);
}

// Whether a lineage file is missing, or a pipe, a directory or a huge file has its name.
bool IsLost(const absl::Status& read) {
  return absl::IsNotFound(read) || absl::IsInvalidArgument(read) ||
         absl::IsFailedPrecondition(read);
}

absl::Status Superseded(const std::string& directory, int64_t epoch, int64_t later) {
  return absl::Status(kSupersededCode,
                      absl::StrCat("checkpoint directory ", directory, " has epoch-", later,
                                   ": epoch ", epoch, " of this job was superseded"));
}

// Returns the checkpoint that an epoch's file names. INVALID_ARGUMENT: the file is damaged.
// UNIMPLEMENTED: a newer Trainyard wrote it.
absl::StatusOr<std::optional<Continued>> Parse(const std::string& text, int64_t epoch) {
  const OrderedJson json = ParseJson<OrderedJson>(text);
  if (json.is_object() && json.contains("version") && json["version"].is_number_integer() &&
      json["version"] > kLineageVersion) {
    return absl::UnimplementedError(absl::StrCat(
        kLineageName, " of epoch ", epoch, ": wanted version ", kLineageVersion, ", found ",
        JsonText(json["version"]), ": run the newer Trainyard that wrote the checkpoints"));
  }
  if (json.is_object() && json.contains("version") && json["version"] == kLineageVersion &&
      json.contains("continues")) {
    const OrderedJson& from = json["continues"];
    if (from.is_null()) return std::nullopt;
    if (from.is_object() && from.contains("epoch") && from["epoch"].is_number_integer() &&
        from.contains("step") && from["step"].is_number_integer()) {
      const Continued continued = {from["epoch"].get<int64_t>(), from["step"].get<int64_t>()};
      if (continued.epoch < epoch) return continued;
    }
  }
  return absl::InvalidArgumentError("not a lineage file");
}

// Whether an epoch without a usable lineage file has nevertheless saved checkpoints.
bool HasCheckpoints(const std::vector<ListedCheckpoint>& listed, int64_t epoch) {
  return std::any_of(listed.begin(), listed.end(), [&](const ListedCheckpoint& checkpoint) {
    return checkpoint.epoch == epoch && checkpoint.complete;
  });
}

}  // namespace

bool Lineage::Holds(int64_t epoch, int64_t step) const {
  return std::any_of(stretches.begin(), stretches.end(), [&](const Stretch& stretch) {
    return stretch.epoch == epoch && step <= stretch.last_step;
  });
}

std::vector<AttemptStart> StartsAfter(const Lineage& lineage, int64_t epoch) {
  std::vector<AttemptStart> starts;
  int64_t begins = 0;
  for (auto stretch = lineage.stretches.rbegin(); stretch != lineage.stretches.rend(); ++stretch) {
    if (stretch->epoch > epoch) starts.push_back({uint64_t(stretch->epoch), uint64_t(begins)});
    begins = stretch->last_step;
  }
  return starts;
}

bool Lineage::Holds(const ListedCheckpoint& listed) const {
  return listed.complete && Holds(listed.epoch, listed.step);
}

// Names what somebody else has put among the attempts.
void NameImpossibleEpochs(const std::string& directory) {
  const auto names = ListCanonical(directory);
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    if (!IsImpossibleEpochName(name)) continue;
    LogWarning("epoch_ignored", {{"directory", absl::StrCat(directory, "/", name)},
                                 {"most", kMostEpoch},
                                 {"meaning", "no attempt made it; remove it"}});
  }
}

absl::Status BeginEpoch(const std::string& directory, int64_t epoch, Storage& storage) {
  NameImpossibleEpochs(directory);
  RETURN_IF_ERROR(CheckNewest(directory, epoch));
  RETURN_IF_ERROR(storage.MakeDirectory(EpochPath(directory, epoch)));
  RETURN_IF_ERROR(storage.SyncDirectory(directory));
  // Two attempts may have begun at once. The later one continues.
  return CheckNewest(directory, epoch);
}

absl::Status WriteLineage(const std::string& directory, int64_t epoch,
                          const std::optional<Continued>& continued, Storage& storage,
                          const std::optional<InitialisedFrom>& initialised_from) {
  const std::string path = LineagePath(directory, epoch), temporary = path + ".tmp";
  OrderedJson json = {{"version", kLineageVersion}, {"epoch", epoch}, {"continues", nullptr}};
  if (continued) json["continues"] = {{"epoch", continued->epoch}, {"step", continued->step}};
  // JSON can hold only UTF-8. If the path is not UTF-8, the next attempt chooses again.
  if (initialised_from && ValidUtf8(initialised_from->path) == initialised_from->path) {
    WriteFields(json["initialised_from"], *initialised_from);
  }
  const std::string text = JsonText(json) + "\n";
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file, storage.Create(temporary));
    RETURN_IF_ERROR(file->Append(text.data(), text.size()));
    RETURN_IF_ERROR(file->Sync());
  }
  RETURN_IF_ERROR(storage.Rename(temporary, path));
  return storage.SyncDirectory(EpochPath(directory, epoch));
}

absl::StatusOr<std::optional<InitialisedFrom>> ReadInitialisedFrom(
    const std::string& directory, std::optional<absl::string_view> named) {
  ASSIGN_OR_RETURN(std::vector<int64_t> epochs, ListEpochs(directory));
  std::sort(epochs.begin(), epochs.end());
  for (const int64_t epoch : epochs) {
    const auto text = ReadCanonical(LineagePath(directory, epoch), kMaxLineageBytes);
    if (IsLost(text.status())) continue;
    RETURN_IF_ERROR(text.status());
    const OrderedJson json = ParseJson<OrderedJson>(*text);
    if (!json.is_object() || !json.contains("initialised_from")) continue;
    InitialisedFrom from;
    const absl::Status read = ReadFields(json["initialised_from"], from);
    if (read.ok() && from.named == named.value_or(from.named))
      return from;  // A damaged entry is ignored.
  }
  return std::nullopt;
}

absl::StatusOr<Lineage> ReadLineage(const std::string& directory) {
  ASSIGN_OR_RETURN(const JobDirectory found, ListJobDirectory(directory));
  return ReadLineage(directory, found);
}

absl::StatusOr<Lineage> ReadLineage(const std::string& directory, const JobDirectory& found) {
  Lineage lineage;
  Stretch next = {kEveryStep, kEveryStep};  // The next stretch: at most this epoch and step.
  bool named = false;                       // A lineage file names exactly this epoch.
  for (const int64_t epoch : found.epochs) {
    if (epoch > next.epoch || (named && epoch < next.epoch)) continue;
    const auto text = ReadCanonical(LineagePath(directory, epoch), kMaxLineageBytes);
    const auto continued = text.ok() ? Parse(*text, epoch) : text.status();
    // A file that this host or this build cannot read is not damaged.
    const absl::Status& read = continued.status();
    if (absl::IsInternal(read) || absl::IsPermissionDenied(read) || absl::IsUnimplemented(read)) {
      return read;
    }
    if (!continued.ok() && !HasCheckpoints(found.checkpoints, epoch) && !named) {
      if (!IsLost(read)) return read;
      continue;  // The epoch began and chose nothing.
    }
    lineage.stretches.push_back({epoch, named ? next.last_step : kEveryStep});
    if (continued.ok() && !continued->has_value()) break;
    named = continued.ok();
    next =
        named ? Stretch{(*continued)->epoch, (*continued)->step} : Stretch{epoch - 1, kEveryStep};
  }
  return lineage;
}

absl::StatusOr<std::vector<ListedCheckpoint>> LoadableCheckpoints(const std::string& directory) {
  ASSIGN_OR_RETURN(JobDirectory found, ListJobDirectory(directory));
  ASSIGN_OR_RETURN(const Lineage lineage, ReadLineage(directory, found));
  std::erase_if(found.checkpoints, [&](const ListedCheckpoint& c) { return !lineage.Holds(c); });
  return std::move(found.checkpoints);
}

absl::StatusOr<int64_t> NewestEpoch(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> epochs, ListEpochs(directory));
  return epochs.empty() ? 0 : epochs.front();
}

absl::Status CheckNewest(const std::string& directory, int64_t epoch) {
  const int64_t newest = NewestEpoch(directory).value_or(0);
  return newest <= epoch ? absl::OkStatus() : Superseded(directory, epoch, newest);
}

bool IsSuperseded(const absl::Status& status) { return status.code() == kSupersededCode; }

absl::Status StorageFault(const std::string& directory, const std::string& found) {
  return absl::Status(
      kStorageFaultCode,
      absl::StrCat("checkpoint.directory: ", directory, " ", found,
                   ", although this job has used it; wanted it as the job left it. Is its file "
                   "system mounted on this host?"));
}

absl::Status StorageFull(const std::string& directory, const absl::Status& status) {
  return absl::Status(kStorageFaultCode,
                      absl::StrCat("checkpoint.directory: no space left in ", directory, " (",
                                   status.message(), "); the job goes on once there is some"));
}

absl::Status ProgramTooOld(const absl::Status& status) {
  return absl::Status(
      kStorageFaultCode,
      absl::StrCat(
          status.message(),
          ": a later version of Trainyard wrote it, and this host's is too old to read it. "
          "Install the later version on this host"));
}

absl::Status OfThisHost(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInternal:
      return absl::Status(kStorageFaultCode,
                          absl::StrCat(status.message(),
                                       "; an earlier attempt of this job could use it. Is its file "
                                       "system mounted on this host?"));
    default:
      return status;
  }
}

bool IsStorageFault(const absl::Status& status) { return status.code() == kStorageFaultCode; }

}  // namespace trainyard
