#include "train/checkpoint/load.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "train/checkpoint/paths.h"

namespace trainyard {
namespace {

constexpr uint64_t kManifestLimitBytes = 256 << 20;
constexpr size_t kChunkBytes = 1 << 20;

std::string Describe(const StoredTensor& tensor) {
  return absl::StrCat("tensor ", tensor.name, " (", Name(tensor.kind), ")");
}

absl::Status WithPath(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

// The data files of a checkpoint, each opened once, confined to its directory.
class DataFiles {
 public:
  explicit DataFiles(const std::string& directory) : roots_({directory}) {}

  absl::StatusOr<const InputFile*> Get(const std::string& directory, const std::string& name) {
    if (const auto it = files_.find(name); it != files_.end()) return &it->second;
    ASSIGN_OR_RETURN(InputFile file, InputFile::Open(absl::StrCat(directory, "/", name), roots_));
    return &files_.emplace(name, std::move(file)).first->second;
  }

 private:
  const Roots roots_;
  std::map<std::string, InputFile> files_;
};

// Streams a box's bytes through `use(data, bytes)` and compares their hash with the manifest's.
template <typename Use>
absl::Status ReadChecked(const InputFile& file, const StoredTensor& tensor, const StoredBox& stored,
                         Use&& use) {
  Sha256 hash;
  uint64_t left = uint64_t(stored.box.elements()) * SizeOf(tensor.dtype);
  std::string chunk(std::min<uint64_t>(left, kChunkBytes), '\0');
  for (uint64_t at = stored.file_offset; left > 0;) {
    const size_t bytes = size_t(std::min<uint64_t>(left, chunk.size()));
    RETURN_IF_ERROR(file.ReadAt(at, chunk.data(), bytes));
    hash.Update(chunk.data(), bytes);
    use(chunk.data(), bytes);
    at += bytes;
    left -= bytes;
  }
  if (hash.HexDigest() == stored.sha256) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(file.path(), ": ", Describe(tensor), ", box ",
                                          ToString(stored.box),
                                          ", does not match its checksum: damaged"));
}

// A view of what a box of a tensor is to be filled with, or compared.
struct BoxMemory {
  Box box;
  char* data;
};

// Copies what the stored boxes and `target` share, reading only that.
absl::Status Fill(const StoredTensor& tensor, const std::string& directory, DataFiles& files,
                  BoxMemory target) {
  const size_t element = SizeOf(tensor.dtype);
  for (const StoredBox& stored : tensor.boxes) {
    if (!Intersection(stored.box, target.box)) continue;
    ASSIGN_OR_RETURN(const InputFile* file, files.Get(directory, stored.file));
    if (stored.box == target.box) {
      char* to = target.data;
      return ReadChecked(*file, tensor, stored, [&](const char* data, size_t bytes) {
        std::copy_n(data, bytes, to);
        to += bytes;
      });
    }
    RETURN_IF_ERROR(
        ForEachSharedRun(stored.box, target.box, [&](int64_t from, int64_t to, int64_t count) {
          return file->ReadAt(stored.file_offset + uint64_t(from) * element,
                              target.data + size_t(to) * element, size_t(count) * element);
        }));
  }
  return absl::OkStatus();
}

// SHA-256 of the global tensor's bytes in C order, by stretches of its first dim.
absl::StatusOr<std::string> HashTensor(const StoredTensor& tensor, const std::string& directory,
                                       DataFiles& files) {
  for (const StoredBox& stored : tensor.boxes) {
    ASSIGN_OR_RETURN(const InputFile* file, files.Get(directory, stored.file));
    RETURN_IF_ERROR(ReadChecked(*file, tensor, stored, [](const char*, size_t) {}));
  }
  const Box whole = WholeBox(tensor.shape);
  if (tensor.boxes.size() == 1) return tensor.boxes[0].sha256;
  Sha256 hash;
  const int64_t rows = tensor.shape[0];
  const size_t row_bytes = size_t(tensor.shape.elements() / rows) * SizeOf(tensor.dtype);
  const int64_t stretch = std::max<int64_t>(1, int64_t(kChunkBytes / row_bytes));
  std::string buffer;
  for (int64_t row = 0; row < rows; row += stretch) {
    const int64_t count = std::min(stretch, rows - row);
    buffer.resize(size_t(count) * row_bytes);
    const Box part{whole.offset.With(0, row), whole.extent.With(0, count)};
    RETURN_IF_ERROR(Fill(tensor, directory, files, {part, buffer.data()}));
    hash.Update(buffer);
  }
  return hash.HexDigest();
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
  ASSIGN_OR_RETURN(const std::string text, ReadFile(manifest_path, kManifestLimitBytes));
  absl::StatusOr<Manifest> manifest = ParseManifest(text);
  if (!manifest.ok()) return WithPath(manifest_path, manifest.status());
  checkpoint.manifest_ = *std::move(manifest);
  RETURN_IF_ERROR(CheckName(checkpoint.path_, checkpoint.state()));
  DataFiles files(checkpoint.path_);
  for (const auto& [name, size] : checkpoint.manifest_.file_sizes) {
    ASSIGN_OR_RETURN(const InputFile* file, files.Get(checkpoint.path_, name));
    if (file->size() == size) continue;
    return absl::DataLossError(
        absl::StrCat(file->path(), ": wanted ", size, " bytes, found ", file->size(), ": damaged"));
  }
  return checkpoint;
}

absl::Status Checkpoint::Verify() const {
  DataFiles files(path_);
  for (const StoredTensor& tensor : manifest_.tensors) {
    for (const StoredBox& stored : tensor.boxes) {
      ASSIGN_OR_RETURN(const InputFile* file, files.Get(path_, stored.file));
      RETURN_IF_ERROR(ReadChecked(*file, tensor, stored, [](const char*, size_t) {}));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Checkpoint::Digest() const {
  DataFiles files(path_);
  std::vector<std::string> lines;
  for (const StoredTensor& tensor : manifest_.tensors) {
    ASSIGN_OR_RETURN(const std::string sha256, HashTensor(tensor, path_, files));
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

absl::Status Checkpoint::Load(std::span<const TargetBox> boxes, const BoxCopy& to_device) const {
  // All of them first, so that nothing is overwritten by a checkpoint that does not fit.
  for (const TargetBox& target : boxes) {
    if (absl::Status status = CheckTarget(manifest_.Find(target.name, target.kind), target);
        !status.ok()) {
      return WithPath(path_, status);
    }
  }
  DataFiles files(path_);
  for (const TargetBox& target : boxes) {
    const StoredTensor* tensor = manifest_.Find(target.name, target.kind);
    const size_t bytes = size_t(target.box.elements()) * SizeOf(target.dtype);
    std::vector<char> staged(to_device ? bytes : 0);
    char* const on_host = to_device ? staged.data() : static_cast<char*>(target.data);
    RETURN_IF_ERROR(Fill(*tensor, path_, files, {target.box, on_host}));
    if (to_device) to_device(target.data, on_host, bytes);
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::CheckModel(const ModelConfig& model) const {
  const ModelConfig& mine = state().model;
  absl::Status status;
  const auto compare = [&](const char* field, const auto& found, const auto& wanted) {
    if (found == wanted || !status.ok()) return;
    status = absl::InvalidArgumentError(absl::StrCat(path_, ": another model's checkpoint: ", field,
                                                     " is ", found, ", wanted ", wanted));
  };
  compare("family", mine.family, model.family);
  compare("layers", mine.layers, model.layers);
  compare("hidden", mine.hidden, model.hidden);
  compare("ffn", mine.ffn, model.ffn);
  compare("heads", mine.heads, model.heads);
  compare("kv_heads", mine.kv_heads, model.kv_heads);
  compare("head_dim", mine.head_dim, model.head_dim);
  compare("vocab", mine.vocab, model.vocab);
  compare("max_seq", mine.max_seq, model.max_seq);
  compare("norm_eps", mine.norm_eps, model.norm_eps);
  compare("rope_base", mine.rope_base, model.rope_base);
  compare("tied", mine.tied, model.tied);
  const auto factor = [](const ModelConfig& m) {
    return m.rope_scaling ? m.rope_scaling->factor : 1;
  };
  compare("rope_scaling.factor", factor(mine), factor(model));
  // What the parameters mean; how they were balanced may change.
  const MoeConfig moe = mine.moe.value_or(MoeConfig()), wanted = model.moe.value_or(MoeConfig());
  compare("moe.experts", moe.experts, wanted.experts);
  compare("moe.top_k", moe.top_k, wanted.top_k);
  compare("moe.expert_ffn", moe.expert_ffn, wanted.expert_ffn);
  compare("moe.shared_ffn", moe.shared_ffn, wanted.shared_ffn);
  compare("moe.router", Name(moe.router), Name(wanted.router));
  compare("moe.expert_bias", moe.expert_bias, wanted.expert_bias);
  compare("moe.groups", moe.groups, wanted.groups);
  compare("moe.topk_groups", moe.topk_groups, wanted.topk_groups);
  compare("moe.norm_topk", moe.norm_topk, wanted.norm_topk);
  compare("moe.routed_scaling", moe.routed_scaling, wanted.routed_scaling);
  if (status.ok() && mine.rope_scaling != model.rope_scaling) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": another model's checkpoint: rope_scaling differs"));
  }
  return status;
}

}  // namespace trainyard
