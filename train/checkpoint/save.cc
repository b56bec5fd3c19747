#include "train/checkpoint/save.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "train/checkpoint/pieces.h"
#include "train/checkpoint/remove.h"

namespace trainyard {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints hold memory as it is");

// Calls use(data, bytes) for each chunk of the memory, copied to the host if it is not there.
template <typename Use>
absl::Status ForEachChunk(const void* data, size_t bytes, const BoxCopy& to_host, Use&& use) {
  std::vector<char> staged(to_host ? kChunkBytes : 0);
  for (const char* from = static_cast<const char*>(data); bytes > 0;) {
    const size_t chunk = std::min(bytes, kChunkBytes);
    if (to_host) to_host(staged.data(), from, chunk);
    const char* const on_host = to_host ? staged.data() : from;
    RETURN_IF_ERROR(use(on_host, chunk));
    from += chunk;
    bytes -= chunk;
  }
  return absl::OkStatus();
}

// Appends a box and the checksums of its pieces.
absl::StatusOr<StoredBox> AppendBox(const SourceBox& source, OutputFile& file,
                                    const BoxCopy& to_host) {
  const size_t element = SizeOf(source.dtype);
  StoredBox stored{.box = source.box, .piece = PieceShape(source.box.extent, element)};
  Sha256 hash;
  std::optional<PieceChecksums> checksums;
  if (stored.piece.rank() > 0) checksums.emplace(source.box.extent, stored.piece, element);
  RETURN_IF_ERROR(ForEachChunk(source.data, size_t(source.box.elements()) * element, to_host,
                               [&](const char* data, size_t bytes) {
                                 hash.Update(data, bytes);
                                 if (checksums) checksums->Update(data, bytes);
                                 return file.Append(data, bytes);
                               }));
  stored.sha256 = hash.HexDigest();
  if (checksums) {
    const std::vector<uint32_t>& sums = checksums->sums();
    RETURN_IF_ERROR(file.Append(sums.data(), sums.size() * sizeof(sums[0])));
  }
  return stored;
}

// Returns one entry for each tensor, with the boxes of all ranks.
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

namespace {

absl::Status Begin(const std::string& directory, int64_t epoch, const std::string& path,
                   Storage& storage) {
  const std::string epoch_path = EpochPath(directory, epoch);
  RETURN_IF_ERROR(storage.MakeDirectory(epoch_path));
  RETURN_IF_ERROR(storage.SyncDirectory(directory));
  if (Exists(path)) RETURN_IF_ERROR(RemoveCheckpoint(path, storage));
  RETURN_IF_ERROR(storage.MakeDirectory(path));
  return storage.SyncDirectory(epoch_path);
}

}  // namespace

absl::Status BeginCheckpoint(const std::string& directory, int64_t epoch, int64_t step,
                             Storage& storage) {
  return Begin(directory, epoch, CheckpointPath(directory, epoch, step), storage);
}

absl::Status BeginBase(const std::string& directory, int64_t epoch, Storage& storage) {
  return Begin(directory, epoch, BasePath(directory, epoch), storage);
}

absl::StatusOr<RankWriter> RankWriter::Create(const std::string& checkpoint, int64_t rank,
                                              Storage& storage) {
  const std::string name = DataFileName(rank);
  ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> file,
                   storage.Create(absl::StrCat(checkpoint, "/", name)));
  return RankWriter(checkpoint, name, std::move(file), storage);
}

absl::Status RankWriter::Append(const SourceBox& source, const BoxCopy& to_host) {
  ASSIGN_OR_RETURN(StoredBox stored, AppendBox(source, *file_, to_host));
  stored.file = name_;
  stored.file_offset = offset_;
  offset_ += uint64_t(source.box.elements()) * SizeOf(source.dtype) +
             PieceTableBytes(stored.box.extent, stored.piece);
  written_.push_back({.name = source.name,
                      .kind = source.kind,
                      .dtype = source.dtype,
                      .shape = source.global_shape,
                      .boxes = {std::move(stored)}});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StoredTensor>> RankWriter::Finish() {
  RETURN_IF_ERROR(file_->Sync());
  RETURN_IF_ERROR(storage_->SyncDirectory(checkpoint_));
  return std::move(written_);
}

absl::StatusOr<std::vector<StoredTensor>> WriteRank(const std::string& checkpoint, int64_t rank,
                                                    std::span<const SourceBox> boxes,
                                                    Storage& storage, const BoxCopy& to_host) {
  ASSIGN_OR_RETURN(RankWriter writer, RankWriter::Create(checkpoint, rank, storage));
  for (const SourceBox& source : boxes) RETURN_IF_ERROR(writer.Append(source, to_host));
  return writer.Finish();
}

absl::StatusOr<Manifest> CommitAlone(const std::string& checkpoint, const RunState& state,
                                     std::vector<StoredTensor> written, Storage& storage) {
  ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors, JoinBoxes(std::move(written)));
  ASSIGN_OR_RETURN(Manifest manifest, MakeManifest(state, std::move(tensors)));
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

absl::StatusOr<Manifest> CommitCheckpoint(const std::string& directory, const RunState& state,
                                          std::vector<StoredTensor> written, Storage& storage) {
  return CommitAlone(CheckpointPath(directory, state.epoch, state.step), state, std::move(written),
                     storage);
}

absl::StatusOr<BaseReference> CommitBase(const std::string& directory, const RunState& state,
                                         std::vector<StoredTensor> written, Storage& storage) {
  ASSIGN_OR_RETURN(const Manifest manifest, CommitAlone(BasePath(directory, state.epoch), state,
                                                        std::move(written), storage));
  ASSIGN_OR_RETURN(const Manifest parsed, ParseManifest(ToJson(manifest)));
  return BaseReference{.epoch = state.epoch, .sha256 = parsed.sha256};
}

}  // namespace trainyard
