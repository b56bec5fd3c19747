// Writes checkpoints that exist completely or not at all, whatever fails. The data files are
// written first, and then the manifest.
//
//   DIR/owner.json                      which job owns the directory (claim.h)
//   DIR/epoch-E/job.json                the job that the attempt trains (recorded_job.h)
//   DIR/epoch-E/lineage.json            which checkpoint the attempt continues (lineage.h)
//   DIR/epoch-E/step-N/rank-R.bin       the boxes that rank R wrote
//   DIR/epoch-E/step-N/manifest.json    written last; without it there is no checkpoint
//   DIR/epoch-E/base/                   frozen parameters, written once; later checkpoints name it
//
// Only one process per job and epoch commits: rank 0.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/opened.h"
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

// Makes an empty directory for (epoch, step). Removes a checkpoint that was there, so call this
// only for a step after the one that was loaded. Rank 0 must call it before any rank writes.
absl::Status BeginCheckpoint(const std::string& directory, int64_t epoch, int64_t step,
                             Storage& storage);

// The same for the base of an attempt.
absl::Status BeginBase(const std::string& directory, int64_t epoch, Storage& storage);

// Writes one rank's boxes one after the other, so that not all of them need to be in memory.
class RankWriter {
 public:
  // Makes the file. `checkpoint` is the directory of a checkpoint or a base. `storage` must outlive
  // this object.
  static absl::StatusOr<RankWriter> Create(const std::string& checkpoint, int64_t rank,
                                           Storage& storage);

  // Appends a box, either directly from its memory or in pieces that `to_host` copies.
  absl::Status Append(const SourceBox& box, const BoxCopy& to_host = nullptr);
  // Syncs the file. Returns the entries for the manifest.
  absl::StatusOr<std::vector<StoredTensor>> Finish();

 private:
  RankWriter(std::string checkpoint, std::string name, std::unique_ptr<OutputFile> file,
             Storage& storage)
      : checkpoint_(std::move(checkpoint)),
        name_(std::move(name)),
        file_(std::move(file)),
        storage_(&storage) {}

  std::string checkpoint_, name_;
  std::unique_ptr<OutputFile> file_;
  Storage* storage_;
  std::vector<StoredTensor> written_;
  uint64_t offset_ = 0;
};

// Writes and syncs one rank's boxes, either directly from their memory or in pieces that `to_host`
// copies. `checkpoint` must be a CheckpointPath or a BasePath. Returns the entries for the
// manifest. After an error a partial file may remain, which is no checkpoint.
absl::StatusOr<std::vector<StoredTensor>> WriteRank(const std::string& checkpoint, int64_t rank,
                                                    std::span<const SourceBox> boxes,
                                                    Storage& storage,
                                                    const BoxCopy& to_host = nullptr);

// Commits a checkpoint. Rank 0 must call this after every rank has written. `written` holds the
// entries of all ranks; the boxes of one tensor are joined. Returns the manifest. After OK the
// checkpoint survives a power cut. After an error the checkpoint may exist, completely, or not.
absl::StatusOr<Manifest> CommitCheckpoint(const std::string& directory, const RunState& state,
                                          std::vector<StoredTensor> written, Storage& storage);

// The same for a checkpoint in a directory of any name, which belongs to no job's directory.
absl::StatusOr<Manifest> CommitAlone(const std::string& checkpoint, const RunState& state,
                                     std::vector<StoredTensor> written, Storage& storage);

// The same for the base of the attempt `state.epoch`. Returns the reference by which checkpoints
// name the base.
absl::StatusOr<BaseReference> CommitBase(const std::string& directory, const RunState& state,
                                         std::vector<StoredTensor> written, Storage& storage);

// Removes old checkpoints. Rank 0 calls this after a commit. Removes:
// - checkpoints older than the `keep` newest good ones of the newest lineage, also those outside
//   the lineage, except the `keep_best` good ones of the lineage with the lowest validation loss
//   (best.h);
// - half-written checkpoints;
// - empty directories of earlier attempts;
// - bases of earlier attempts that no complete checkpoint names; if a manifest cannot be read, all
//   bases stay.
// A complete checkpoint that is newer than one of those kept stays, even if it is outside the
// lineage or looks damaged: a bad read on one host must not delete a good copy. Never removes what
// an attempt of `epoch` or later is writing. Removes nothing once a later epoch has begun, because
// a superseded attempt must not delete what its successor loads. If OK is returned, `left` receives
// the loadable checkpoints of the directory, newest first; null: nobody asks. Opens checkpoints
// that `opened` has not.
struct Retention {
  int64_t keep = 2;
  int64_t epoch = 0;
  int64_t keep_best = 0;
};
absl::Status ApplyRetention(const std::string& directory, const Retention& retention,
                            Storage& storage, OpenedCheckpoints& opened,
                            std::vector<ListedCheckpoint>* left);
absl::Status ApplyRetention(const std::string& directory, const Retention& retention,
                            Storage& storage);

}  // namespace trainyard
