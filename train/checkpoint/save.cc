#include "train/checkpoint/save.h"

#include <algorithm>
#include <bit>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "train/checkpoint/remove.h"

namespace trainyard {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints hold memory as it is");

// Hashed and written while it is in the cache.
constexpr size_t kChunkBytes = 1 << 20;

absl::Status AppendHashed(const void* data, size_t bytes, OutputFile& file, Sha256& hash,
                          const BoxCopy& to_host) {
  std::vector<char> staged(to_host ? kChunkBytes : 0);
  for (const char* from = static_cast<const char*>(data); bytes > 0;) {
    const size_t chunk = std::min(bytes, kChunkBytes);
    if (to_host) to_host(staged.data(), from, chunk);
    const char* const on_host = to_host ? staged.data() : from;
    hash.Update(on_host, chunk);
    RETURN_IF_ERROR(file.Append(on_host, chunk));
    from += chunk;
    bytes -= chunk;
  }
  return absl::OkStatus();
}

// One entry a tensor, with the boxes of all ranks.
absl::StatusOr<std::vector<StoredTensor>> JoinBoxes(std::vector<StoredTensor> written) {
  std::map<std::pair<std::string, TensorKind>, StoredTensor> joined;
  for (StoredTensor& part : written) {
    const auto [it, inserted] = joined.try_emplace({part.name, part.kind}, part);
    if (inserted) continue;
    StoredTensor& whole = it->second;
    if (whole.dtype != part.dtype || !(whole.shape == part.shape)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", part.name, " (", Name(part.kind), "): ranks disagree, ", Name(whole.dtype),
          " ", ToString(whole.shape), " and ", Name(part.dtype), " ", ToString(part.shape)));
    }
    whole.boxes.insert(whole.boxes.end(), part.boxes.begin(), part.boxes.end());
  }
  std::vector<StoredTensor> tensors;
  for (auto& [key, tensor] : joined) tensors.push_back(std::move(tensor));
  return tensors;
}

}  // namespace

absl::Status BeginCheckpoint(const std::string& directory, int64_t epoch, int64_t step,
                             Storage& storage) {
  const std::string epoch_path = EpochPath(directory, epoch),
                    path = CheckpointPath(directory, epoch, step);
  RETURN_IF_ERROR(storage.MakeDirectory(epoch_path));
  RETURN_IF_ERROR(storage.SyncDirectory(directory));
  if (Exists(path)) RETURN_IF_ERROR(RemoveCheckpoint(path, storage));
  RETURN_IF_ERROR(storage.MakeDirectory(path));
  return storage.SyncDirectory(epoch_path);
}

absl::StatusOr<std::vector<StoredTensor>> WriteRank(const std::string& checkpoint, int64_t rank,
                                                    std::span<const SourceBox> boxes,
                                                    Storage& storage, const BoxCopy& to_host) {
  const std::string name = DataFileName(rank);
  ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file,
                   storage.Create(absl::StrCat(checkpoint, "/", name)));
  std::vector<StoredTensor> written;
  uint64_t offset = 0;
  for (const SourceBox& source : boxes) {
    const size_t bytes = size_t(source.box.elements()) * SizeOf(source.dtype);
    Sha256 hash;
    RETURN_IF_ERROR(AppendHashed(source.data, bytes, *file, hash, to_host));
    written.push_back({.name = source.name,
                       .kind = source.kind,
                       .dtype = source.dtype,
                       .shape = source.global_shape,
                       .boxes = {{source.box, name, offset, hash.HexDigest()}}});
    offset += bytes;
  }
  RETURN_IF_ERROR(file->Sync());
  RETURN_IF_ERROR(storage.SyncDirectory(checkpoint));
  return written;
}

absl::StatusOr<Manifest> CommitCheckpoint(const std::string& directory, const RunState& state,
                                          std::vector<StoredTensor> written, Storage& storage) {
  ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors, JoinBoxes(std::move(written)));
  ASSIGN_OR_RETURN(Manifest manifest, MakeManifest(state, std::move(tensors)));
  const std::string checkpoint = CheckpointPath(directory, state.epoch, state.step);
  const std::string path = absl::StrCat(checkpoint, "/", kManifestName), temporary = path + ".tmp";
  const std::string text = ToJson(manifest);
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file, storage.Create(temporary));
    RETURN_IF_ERROR(file->Append(text.data(), text.size()));
    RETURN_IF_ERROR(file->Sync());
  }
  RETURN_IF_ERROR(storage.Rename(temporary, path));
  RETURN_IF_ERROR(storage.SyncDirectory(checkpoint));
  return manifest;
}

}  // namespace trainyard
