// Writes checkpoints that are there completely or not at all, whatever fails on the way: data
// files, then the manifest.
//
//   DIR/owner.json                      whose directory it is
//   DIR/epoch-E/lineage.json            which checkpoint the attempt continues (lineage.h)
//   DIR/epoch-E/step-N/rank-R.bin       the boxes that rank R wrote
//   DIR/epoch-E/step-N/manifest.json    written last; without it there is no checkpoint
//   DIR/epoch-E/base/                   frozen parameters, written once; later checkpoints name it
//
// One process per job and epoch commits: rank 0.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/paths.h"
#include "train/checkpoint/storage.h"

namespace trainyard {

// A box of a tensor in this rank's memory, rows contiguous. A view.
struct SourceBox {
  std::string name;
  TensorKind kind = TensorKind::kParameter;
  DType dtype = DType::kF32;
  Shape global_shape;
  Box box;
  const void* data = nullptr;
};

// Makes `directory` (as Roots::MakeDirectory returns it) this job's own, and begins the epoch in it
// (BeginEpoch). Rank 0, before it looks for a checkpoint. With nothing changed: FAILED_PRECONDITION
// where the directory belongs to another job or holds files of somebody else; an error for which
// IsSuperseded holds where a later epoch has begun. Two jobs at once: one wins.
absl::Status ClaimDirectory(const std::string& directory, const std::string& job_id, int64_t epoch,
                            Storage& storage);

// Makes the directory of (epoch, step), empty. A checkpoint that was there is removed first: call
// it only for a step beyond the one that was loaded. Rank 0, before any rank writes.
absl::Status BeginCheckpoint(const std::string& directory, int64_t epoch, int64_t step,
                             Storage& storage);

// The same for the base of an attempt.
absl::Status BeginBase(const std::string& directory, int64_t epoch, Storage& storage);

// Writes and syncs one rank's boxes, straight from their memory, or in pieces as `to_host` copies
// them. `checkpoint` is a CheckpointPath or a BasePath. Returns what was written, for the manifest.
// Errors leave a partial file, which is no checkpoint.
absl::StatusOr<std::vector<StoredTensor>> WriteRank(const std::string& checkpoint, int64_t rank,
                                                    std::span<const SourceBox> boxes,
                                                    Storage& storage,
                                                    const BoxCopy& to_host = nullptr);

// The commit: rank 0, after every rank has written. `written` holds all ranks' entries; the boxes
// of one tensor are joined. When it returns OK, the checkpoint survives a power cut; otherwise do
// not count on it (it is there completely or not at all). Returns the manifest.
absl::StatusOr<Manifest> CommitCheckpoint(const std::string& directory, const RunState& state,
                                          std::vector<StoredTensor> written, Storage& storage);

// The same for the base of the attempt `state.epoch`. Returns what checkpoints name it by.
absl::StatusOr<BaseReference> CommitBase(const std::string& directory, const RunState& state,
                                         std::vector<StoredTensor> written, Storage& storage);

// Removes what is older than the `keep` newest good checkpoints of the newest lineage, whether the
// lineage holds it or not, what attempts left half-written, and directories of earlier attempts
// that hold nothing. A complete checkpoint that is newer than one of those stays, even if it is off
// the line or looks damaged: one host's bad read must not delete a good copy. Never removes what an
// attempt of `epoch` or later is writing, or anything once a later epoch has begun: a superseded
// attempt must not delete what its successor loads. A base of an earlier attempt goes once no
// complete checkpoint names it; where one cannot be read, all bases stay. `left`: where it is OK,
// what the directory holds that may be loaded, newest first. Rank 0, after a commit.
struct Retention {
  int64_t keep = 2;
  int64_t epoch = 0;
};
absl::Status ApplyRetention(const std::string& directory, const Retention& retention,
                            Storage& storage, std::vector<ListedCheckpoint>* left = nullptr);

}  // namespace trainyard
