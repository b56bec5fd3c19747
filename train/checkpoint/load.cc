#include "train/checkpoint/load.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "train/checkpoint/paths.h"
#include "train/checkpoint/read_box.h"

namespace trainyard {
namespace {

constexpr uint64_t kManifestLimitBytes = 256 << 20;

absl::Status WithPath(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

absl::Status CheckTarget(const StoredTensor* stored, const TargetBox& target) {
  const std::string what = absl::StrCat("tensor ", target.name, " (", Name(target.kind), ")");
  const std::string wanted = absl::StrCat(Name(target.dtype), " ", ToString(target.global_shape));
  if (stored == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": wanted ", wanted, ", the checkpoint has none"));
  }
  if (stored->dtype != target.dtype || !(stored->shape == target.global_shape)) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": wanted ", wanted,
                                                   ", the checkpoint has ", Name(stored->dtype),
                                                   " ", ToString(stored->shape)));
  }
  const std::optional<Box> inside = Intersection(target.box, WholeBox(target.global_shape));
  CHECK(inside && *inside == target.box) << what << ": box " << ToString(target.box);
  return absl::OkStatus();
}

// A directory that was renamed or copied by hand must not pass for another step of the job.
absl::Status CheckName(const std::string& path, const RunState& state) {
  const auto named = ParseCheckpointPath(path);
  if (!named || *named == std::make_pair(state.epoch, state.step)) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path, "/", kManifestName, ": wanted epoch ", named->first, ", step ",
                   named->second, ", as its directory is named, found epoch ", state.epoch,
                   ", step ", state.step, ": a checkpoint that was renamed or copied"));
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& path, const Roots& roots) {
  Checkpoint checkpoint;
  ASSIGN_OR_RETURN(checkpoint.path_, roots.FindDirectory(path));
  const std::string manifest_path = absl::StrCat(checkpoint.path_, "/", kManifestName);
  ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(manifest_path, kManifestLimitBytes));
  absl::StatusOr<Manifest> manifest = ParseManifest(text);
  if (absl::IsInvalidArgument(manifest.status())) {  // Signed, and contradicts itself.
    return WithPath(manifest_path, absl::DataLossError(manifest.status().message()));
  }
  if (!manifest.ok()) return WithPath(manifest_path, manifest.status());
  checkpoint.manifest_ = *std::move(manifest);
  RETURN_IF_ERROR(CheckName(checkpoint.path_, checkpoint.state()));
  DataFiles files(checkpoint.path_);
  for (const auto& [name, size] : checkpoint.manifest_.file_sizes) {
    const absl::StatusOr<const InputFile*> opened = files.Get(name);
    if (absl::IsInvalidArgument(opened.status())) {  // A directory or a pipe in its place.
      return absl::DataLossError(opened.status().message());
    }
    RETURN_IF_ERROR(opened.status());
    const InputFile* file = *opened;
    if (file->size() == size) continue;
    return absl::DataLossError(
        absl::StrCat(file->path(), ": wanted ", size, " bytes, found ", file->size(), ": damaged"));
  }
  return checkpoint;
}

absl::Status Checkpoint::Verify() const {
  DataFiles files(path_);
  for (const StoredTensor& tensor : manifest_.tensors) {
    for (const StoredBox& stored : tensor.boxes) RETURN_IF_ERROR(VerifyBox(tensor, stored, files));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Checkpoint::Digest() const {
  DataFiles files(path_);
  std::vector<std::string> lines;
  for (const StoredTensor& tensor : manifest_.tensors) {
    for (const StoredBox& stored : tensor.boxes) RETURN_IF_ERROR(VerifyBox(tensor, stored, files));
    ASSIGN_OR_RETURN(const std::string sha256, HashTensor(tensor, files));
    lines.push_back(absl::StrCat(tensor.name, " ", Name(tensor.kind), " ", Name(tensor.dtype), " ",
                                 ToString(tensor.shape), " ", sha256, "\n"));
  }
  std::sort(lines.begin(), lines.end());
  Sha256 hash;
  for (const std::string& line : lines) hash.Update(line);
  hash.Update(absl::StrCat("step ", state().step, "\n"));
  hash.Update(absl::StrCat("data_position ", state().data_position, "\n"));
  hash.Update(absl::StrCat("random_state ", state().seed, "\n"));
  return hash.HexDigest();
}

absl::Status Checkpoint::Load(std::span<const TargetBox> boxes, const BoxCopy& to_device,
                              std::set<std::string>* absent) const {
  // All of them first, so that nothing is overwritten by a checkpoint that does not fit.
  for (const TargetBox& target : boxes) {
    if (absent != nullptr && manifest_.Find(target.name, target.kind) == nullptr) {
      absent->insert(target.name);
      continue;
    }
    if (absl::Status status = CheckTarget(manifest_.Find(target.name, target.kind), target);
        !status.ok()) {
      return WithPath(path_, status);
    }
  }
  DataFiles files(path_);
  for (const TargetBox& target : boxes) {
    const StoredTensor* tensor = manifest_.Find(target.name, target.kind);
    if (tensor == nullptr) continue;
    const size_t bytes = size_t(target.box.elements()) * SizeOf(target.dtype);
    std::vector<char> staged(to_device ? bytes : 0);
    char* const on_host = to_device ? staged.data() : static_cast<char*>(target.data);
    RETURN_IF_ERROR(FillBox(*tensor, target.box, on_host, files));
    if (to_device) to_device(target.data, on_host, bytes);
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::CheckModel(const ModelConfig& model, MayDiffer use) const {
  const auto differs = [&](absl::string_view field, absl::string_view found,
                           absl::string_view wanted) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": another model's checkpoint: ", field,
                                                   " is ", found, ", wanted ", wanted));
  };
  if (state().model.family() != model.family()) {
    return differs("family", state().model.family(), model.family());
  }
  const std::vector<Field> mine = FieldsOf(state().model), wanted = FieldsOf(model);
  for (size_t i = 0; i < mine.size(); ++i) {
    if (mine[i].rule.may_differ >= use || mine[i].value == wanted[i].value) continue;
    return differs(mine[i].rule.name, TextOf(mine[i].value), TextOf(wanted[i].value));
  }
  return absl::OkStatus();
}

}  // namespace trainyard
