#include "train/checkpoint/inputs.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/canonical.h"
#include "common/json.h"
#include "common/json_fields.h"
#include "common/log.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/paths.h"

namespace trainyard {

template <typename V>
static void VisitFields(V& v, InputFingerprint& file) {
  v("field", file.field), v("name", file.name);
  v("size_bytes", file.size_bytes), v("sha256", file.sha256);
}

template <typename V>
static void VisitFields(V& v, RecordedInputs& inputs) {
  v.Whole("epoch", inputs.epoch), v("files", inputs.files);
  v.LaterWhole("tokens_below", inputs.tokens_below);
}

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kInputsVersion = 1;
constexpr uint64_t kMaxInputsBytes = 64 << 20;
constexpr size_t kShownDigits = 16;  // Of a fingerprint, in messages.

using ByField = std::map<std::string, std::vector<InputFingerprint>>;

ByField Grouped(const std::vector<InputFingerprint>& files) {
  ByField groups;
  for (const InputFingerprint& file : files) groups[file.field].push_back(file);
  return groups;
}

std::string InputsPath(const std::string& directory, int64_t epoch) {
  return absl::StrCat(EpochPath(directory, epoch), "/", kInputsName);
}

std::string Shown(const InputFingerprint& file) {
  return absl::StrCat(file.size_bytes, " bytes with the fingerprint ",
                      file.sha256.substr(0, kShownDigits));
}

bool SameFile(const InputFingerprint& a, const InputFingerprint& b) {
  return a.name == b.name && a.size_bytes == b.size_bytes && a.sha256 == b.sha256;
}

// Describes the difference of two lists at place i, at which one of them may have ended.
std::string Difference(const std::vector<InputFingerprint>& found,
                       const std::vector<InputFingerprint>& wanted, size_t i,
                       absl::string_view recorded_by) {
  if (i >= found.size()) {
    return absl::StrCat("wanted a file ", wanted[i].name, ", which ", recorded_by,
                        " read, found none");
  }
  const std::string not_the_same =
      absl::StrCat(found[i].path, " is not the file that ", recorded_by, " read: wanted ");
  const bool named = i < wanted.size() && wanted[i].name == found[i].name;
  const std::string what = named ? Shown(wanted[i]) : "no file of this name";
  return absl::StrCat(not_the_same, what, ", found ", Shown(found[i]));
}

}  // namespace

absl::StatusOr<InputFingerprint> TakeFingerprint(const std::string& field, const std::string& name,
                                                 const std::string& path, const Roots& roots) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path, roots));
  const uint64_t size = file.size();
  const bool whole = size <= kPlaces * kPlaceBytes;
  std::string bytes(size_t(whole ? size : kPlaceBytes), '\0');
  Sha256 hash;
  for (uint64_t i = 0; i < (whole ? 1 : kPlaces); ++i) {
    const uint64_t last = size - bytes.size();
    const uint64_t at = i + 1 == kPlaces ? last : last / (kPlaces - 1) * i;
    RETURN_IF_ERROR(file.ReadAt(at, bytes.data(), bytes.size()));
    hash.Update(bytes);
  }
  return InputFingerprint{field, name, size, hash.HexDigest(), path};
}

std::string ToJson(const RecordedInputs& inputs) {
  OrderedJson json = {{"version", kInputsVersion}};
  WriteFields(json, inputs);
  return JsonText(json, 1) + "\n";
}

absl::StatusOr<RecordedInputs> ParseInputs(const std::string& text) {
  const OrderedJson json = ParseJson<OrderedJson>(text);
  int64_t version = 0;
  if (!json.is_object() || !json.contains("version") || !ReadInteger(json["version"], version)) {
    return absl::InvalidArgumentError("not a record of inputs");
  }
  if (version > kInputsVersion) {
    return absl::UnimplementedError(absl::StrCat(kInputsName, ": wanted version ", kInputsVersion,
                                                 ", found ", version,
                                                 ": run the newer Trainyard that wrote it"));
  }
  RecordedInputs inputs;
  RETURN_IF_ERROR(ReadFields(json, inputs));
  for (InputFingerprint& file : inputs.files) {
    // Earlier releases recorded the field by a name that no spec has.
    if (file.field == "data.text.tokenizer") file.field = "data.text.tokenizer_path";
  }
  return inputs;
}

absl::StatusOr<std::optional<RecordedInputs>> ReadInputs(const std::string& directory,
                                                         const Lineage& lineage) {
  std::vector<int64_t> epochs;
  for (const Stretch& stretch : lineage.stretches) epochs.push_back(stretch.epoch);
  ASSIGN_OR_RETURN(const std::vector<int64_t> all, ListEpochs(directory));
  epochs.insert(epochs.end(), all.rbegin(), all.rend());
  for (const int64_t epoch : epochs) {
    const auto text = ReadCanonical(InputsPath(directory, epoch), kMaxInputsBytes);
    if (absl::IsNotFound(text.status())) continue;
    absl::StatusOr<RecordedInputs> inputs = text.ok() ? ParseInputs(*text) : text.status();
    if (inputs.ok()) return *std::move(inputs);
    const absl::Status& status = inputs.status();
    // Another kind of file has the name (FAILED_PRECONDITION), or the text is damaged.
    if (!absl::IsInvalidArgument(status) && !absl::IsFailedPrecondition(status)) return status;
    LogWarning("inputs_unreadable", {{"file", InputsPath(directory, epoch)},
                                     {"error", status.message()},
                                     {"then", "the files are not compared with it"}});
  }
  return std::nullopt;
}

absl::Status WriteInputs(const std::string& directory, const RecordedInputs& inputs,
                         Storage& storage) {
  const std::string path = InputsPath(directory, inputs.epoch), temporary = path + ".tmp";
  const std::string text = ToJson(inputs);
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file, storage.Create(temporary));
    RETURN_IF_ERROR(file->Append(text.data(), text.size()));
    RETURN_IF_ERROR(file->Sync());
  }
  RETURN_IF_ERROR(storage.Rename(temporary, path));
  return storage.SyncDirectory(EpochPath(directory, inputs.epoch));
}

void KeepEarlier(const RecordedInputs& earlier, RecordedInputs& later) {
  const ByField own = Grouped(later.files);
  for (const InputFingerprint& file : earlier.files) {
    if (!own.contains(file.field)) later.files.push_back(file);
  }
}

bool Holds(const RecordedInputs& recorded, const std::vector<InputFingerprint>& files) {
  return std::all_of(files.begin(), files.end(), [&](const InputFingerprint& file) {
    return std::any_of(recorded.files.begin(), recorded.files.end(),
                       [&](const InputFingerprint& known) {
                         return known.field == file.field && SameFile(known, file);
                       });
  });
}

absl::Status CompareInputs(const std::vector<InputFingerprint>& found,
                           const RecordedInputs& recorded, absl::string_view recorded_by) {
  const ByField all = Grouped(recorded.files);
  for (const auto& [field, files] : Grouped(found)) {
    const auto group = all.find(field);
    if (group == all.end()) continue;
    const std::vector<InputFingerprint>& wanted = group->second;
    for (size_t i = 0; i < std::max(files.size(), wanted.size()); ++i) {
      if (i < files.size() && i < wanted.size() && SameFile(files[i], wanted[i])) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": ", Difference(files, wanted, i, recorded_by)));
    }
  }
  return absl::OkStatus();
}

}  // namespace trainyard
