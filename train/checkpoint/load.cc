#include "train/checkpoint/load.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/canonical.h"
#include "common/check.h"
#include "common/files.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "kernels/device/nf4.h"
#include "models/program/nf4.h"
#include "train/checkpoint/paths.h"
#include "train/checkpoint/read_box.h"

namespace trainyard {
namespace {

absl::Status WithPath(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
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

absl::StatusOr<Checkpoint::Part> Checkpoint::OpenPart(const std::string& path) {
  Part part{.path = path, .manifest = {}};
  const std::string manifest_path = absl::StrCat(path, "/", kManifestName);
  ASSIGN_OR_RETURN(const std::string text, ReadCanonical(manifest_path, kManifestLimitBytes));
  absl::StatusOr<Manifest> manifest = ParseManifest(text);
  if (absl::IsInvalidArgument(manifest.status())) {  // It contradicts itself.
    return WithPath(manifest_path, absl::DataLossError(manifest.status().message()));
  }
  if (!manifest.ok()) return WithPath(manifest_path, manifest.status());
  part.manifest = *std::move(manifest);
  RETURN_IF_ERROR(CheckName(part.path, part.manifest.state));
  DataFiles files(part.path);
  for (const auto& [name, size] : part.manifest.file_sizes) {
    const absl::StatusOr<const InputFile*> opened = files.Get(name);
    if (absl::IsInvalidArgument(opened.status())) {  // A directory or a pipe has its name.
      return absl::DataLossError(opened.status().message());
    }
    RETURN_IF_ERROR(opened.status());
    const InputFile* file = *opened;
    if (file->size() == size) continue;
    return absl::DataLossError(
        absl::StrCat(file->path(), ": wanted ", size, " bytes, found ", file->size(), ": damaged"));
  }
  return part;
}

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& path, const Roots& roots) {
  ASSIGN_OR_RETURN(const std::string found, roots.FindDirectory(path));
  Checkpoint checkpoint;
  ASSIGN_OR_RETURN(checkpoint.own_, OpenPart(found));
  if (checkpoint.state().base) RETURN_IF_ERROR(checkpoint.OpenBase(roots));
  RETURN_IF_ERROR(checkpoint.FindNf4());
  return checkpoint;
}

absl::Status Checkpoint::CheckSame(const Manifest& base, const BaseReference& wanted) {
  if (base.sha256 == wanted.sha256) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("wanted manifest_sha256 ", wanted.sha256, ", found ", base.sha256));
}

absl::Status Checkpoint::CheckBase(const std::string& directory, const BaseReference& base) {
  const std::string path = BasePath(directory, base.epoch);
  const auto check = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const Part part, OpenPart(path));
    return CheckSame(part.manifest, base);
  };
  if (const absl::Status status = check(); status.ok()) return status;
  DropCachedFiles(path);  // Only this machine's memory may hold bad bytes.
  return check();
}

absl::Status Checkpoint::OpenBase(const Roots& roots) {
  const BaseReference& wanted = *state().base;
  const std::filesystem::path job = std::filesystem::path(path()).parent_path().parent_path();
  const std::string base_path = BasePath(job.string(), wanted.epoch);
  const auto refuse = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(base_path, ": the frozen parameters that ", path(),
                                            " names ", what,
                                            "; copy a checkpoint together with its base"));
  };
  const absl::StatusOr<std::string> found = roots.FindDirectory(base_path);
  absl::StatusOr<Part> part = found.ok() ? OpenPart(*found) : found.status();
  if (absl::IsNotFound(part.status())) return refuse("are not there");
  RETURN_IF_ERROR(part.status());
  const Manifest& base = part->manifest;
  const absl::Status same = CheckSame(base, wanted);
  if (!same.ok()) return refuse(absl::StrCat("are others: ", same.message()));
  if (base.state.base) return refuse("name others");
  for (const StoredTensor& tensor : base.tensors) {
    if (manifest().Find(tensor.name, tensor.kind) == nullptr) continue;
    return refuse(absl::StrCat("hold ", Describe(tensor), ", as the checkpoint itself does"));
  }
  base_ = *std::move(part);
  return absl::OkStatus();
}

absl::Status Checkpoint::FindNf4() {
  if (!base_ || !state().adapter || !state().adapter->nf4) return absl::OkStatus();
  const Manifest& base = base_->manifest;
  for (const StoredTensor& codes : base.tensors) {
    absl::string_view name = codes.name;
    if (!absl::ConsumeSuffix(&name, kNf4Codes)) continue;
    const bool matrix = codes.shape.rank() == 2 && codes.dtype == DType::kU8 &&
                        codes.shape[1] * kNf4PerByte % kNf4Block == 0;
    const ParameterSpec spec = {
        .name = std::string(name),
        .shape = matrix ? Shape({codes.shape[0], codes.shape[1] * kNf4PerByte}) : Shape({1, 64})};
    bool fits = matrix;
    const Nf4Parts parts = PartsInNf4(spec);
    for (const ParameterSpec& part : {parts.scales, parts.groups}) {
      const StoredTensor* const found = base.Find(part.name, TensorKind::kParameter);
      fits &= found != nullptr && found->shape == part.shape && found->dtype == part.packed->dtype;
    }
    if (!fits) {
      return WithPath(base_->path, absl::DataLossError(absl::StrCat(
                                       spec.name, ": its parts in NF4 do not fit together")));
    }
    in_nf4_[spec.name] = {
        .name = spec.name, .dtype = *state().adapter->nf4, .shape = spec.shape, .boxes = {}};
  }
  return absl::OkStatus();
}

const StoredTensor* Checkpoint::Find(absl::string_view name, TensorKind kind) const {
  const StoredTensor* found = manifest().Find(name, kind);
  if (found == nullptr && base_) found = base_->manifest.Find(name, kind);
  if (found != nullptr || kind != TensorKind::kParameter) return found;
  const auto weight = in_nf4_.find(name);
  return weight == in_nf4_.end() ? nullptr : &weight->second;
}

absl::Status Checkpoint::ReadNf4(const StoredTensor& weight, const Box& box, char* data,
                                 DataFiles& files) const {
  // All columns of the box's rows.
  const int64_t first = box.offset[0], rows = box.extent[0], in = weight.shape[1];
  const auto read = [&](const char* ending, const Box& part, auto& values) {
    values.resize(size_t(part.elements()));
    const std::string name = absl::StrCat(weight.name, ending);
    return FillBox(*base_->manifest.Find(name, TensorKind::kParameter), part,
                   reinterpret_cast<char*>(values.data()), files);
  };
  Nf4Tensor parts;
  const int64_t groups = Nf4GroupsOf(weight.shape.elements());
  RETURN_IF_ERROR(read(kNf4Codes, {{first, 0}, {rows, in / kNf4PerByte}}, parts.codes));
  RETURN_IF_ERROR(read(kNf4Scales, {{first, 0}, {rows, in / kNf4Block}}, parts.scales));
  RETURN_IF_ERROR(read(kNf4Groups, WholeBox({groups + 1}), parts.groups));
  std::vector<float> numbers(size_t(rows * in));
  DequantizeNf4({.codes = parts.codes,
                 .scales = parts.scales,
                 .groups = parts.groups,
                 .first_block = first * in / kNf4Block},
                numbers);
  const size_t element = SizeOf(weight.dtype);
  std::vector<char> rounded(numbers.size() * element);
  ConvertNumbers({numbers.data(), DType::kF32}, {rounded.data(), weight.dtype}, rows * in);
  const Box all = {{first, 0}, {rows, in}};
  return ForEachSharedRun(all, box, [&](int64_t from, int64_t to, int64_t count) {
    std::copy_n(rounded.data() + size_t(from) * element, size_t(count) * element,
                data + size_t(to) * element);
    return absl::OkStatus();
  });
}

// Calls f(part, files) for the checkpoint's own part and for its base.
template <typename F>
absl::Status Checkpoint::ForEachPart(F&& f) const {
  DataFiles files(own_.path);
  RETURN_IF_ERROR(f(own_, files));
  if (!base_) return absl::OkStatus();
  DataFiles base_files(base_->path);
  return f(*base_, base_files);
}

absl::Status Checkpoint::Verify() const {
  return ForEachPart([](const Part& part, DataFiles& files) -> absl::Status {
    for (const StoredTensor& tensor : part.manifest.tensors) {
      for (const StoredBox& stored : tensor.boxes) {
        RETURN_IF_ERROR(VerifyBox(tensor, stored, files));
      }
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::string> Checkpoint::Digest() const {
  std::vector<std::string> lines;
  RETURN_IF_ERROR(Verify());
  RETURN_IF_ERROR(ForEachPart([&](const Part& part, DataFiles& files) -> absl::Status {
    for (const StoredTensor& tensor : part.manifest.tensors) {
      ASSIGN_OR_RETURN(const std::string sha256, HashTensor(tensor, files));
      lines.push_back(absl::StrCat(tensor.name, " ", Name(tensor.kind), " ", Name(tensor.dtype),
                                   " ", ToString(tensor.shape), " ", sha256, "\n"));
    }
    return absl::OkStatus();
  }));
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
  // Checks all boxes first, so that a checkpoint that does not fit overwrites nothing.
  for (const TargetBox& target : boxes) {
    const StoredTensor* const stored = Find(target.name, target.kind);
    if (absent != nullptr && stored == nullptr) {
      absent->insert(target.name);
      continue;
    }
    const std::optional<SourceForm> form =
        stored == nullptr ? std::nullopt
                          : std::make_optional(SourceForm{stored->dtype, stored->shape});
    if (absl::Status status = CheckTarget(target, form, "the checkpoint"); !status.ok()) {
      return WithPath(path(), status);
    }
  }
  return ForEachPart([&](const Part& part, DataFiles& files) -> absl::Status {
    for (const TargetBox& target : boxes) {
      const StoredTensor* tensor = part.manifest.Find(target.name, target.kind);
      const auto in_nf4 = in_nf4_.find(target.name);
      if (tensor == nullptr && in_nf4 != in_nf4_.end() && &part != &own_ &&
          target.kind == TensorKind::kParameter) {
        RETURN_IF_ERROR(FillTarget(target, in_nf4->second.dtype, to_device, [&](char* data) {
          return ReadNf4(in_nf4->second, target.box, data, files);
        }));
      }
      if (tensor == nullptr) continue;
      RETURN_IF_ERROR(FillTarget(target, tensor->dtype, to_device, [&](char* data) {
        return FillBox(*tensor, target.box, data, files);
      }));
    }
    return absl::OkStatus();
  });
}

absl::Status Checkpoint::CheckModel(const ModelConfig& model, MayDiffer use) const {
  const std::optional<std::string> differs = FirstDifference(state().model, model, use);
  if (!differs) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path(), ": another model's checkpoint: ", *differs));
}

}  // namespace trainyard
