// Reads checkpoints. Nothing is used that was not checked: the manifest against its own checksum
// when it is opened, every box against its SHA-256 by Verify, and whole boxes again when they are
// loaded.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/roots.h"
#include "train/checkpoint/manifest.h"

namespace trainyard {

// A box of a tensor to be filled in this rank's memory, rows contiguous. A view.
struct TargetBox {
  std::string name;
  TensorKind kind = TensorKind::kParameter;
  DType dtype = DType::kF32;
  Shape global_shape;
  Box box;
  void* data = nullptr;
};

// Immutable, thread-safe.
class Checkpoint {
 public:
  // `path` is the directory of one checkpoint. Checks the manifest, that every file has its size,
  // and that a name "epoch-E/step-N" is the manifest's. Errors name file and tensor: NOT_FOUND
  // where there is none, DATA_LOSS where it is damaged, UNIMPLEMENTED of another version, INTERNAL
  // where the read itself failed (EIO).
  static absl::StatusOr<Checkpoint> Open(const std::string& path, const Roots& roots = Roots());

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  const RunState& state() const { return manifest_.state; }

  // Reads everything. DATA_LOSS names the first damaged file and tensor.
  absl::Status Verify() const;

  // SHA-256 over contents alone, whatever the layout (docs/formats.md). Verifies on the way.
  absl::StatusOr<std::string> Digest() const;

  // INVALID_ARGUMENT names the first field that differs.
  absl::Status CheckModel(const ModelConfig& model) const;

  // Fills the boxes, under whatever layout they were written, reading the ranges they need.
  // INVALID_ARGUMENT names the first tensor that the checkpoint does not have, or has with another
  // shape or dtype. DATA_LOSS as Verify, for boxes that are
  // stored as they are asked for; call Verify for the others.
  // Where the boxes lie in a device's memory, `to_device` copies one after the other there.
  absl::Status Load(std::span<const TargetBox> boxes, const BoxCopy& to_device = nullptr) const;

 private:
  std::string path_;
  Manifest manifest_;
};

struct ListedCheckpoint {
  std::string path;
  int64_t epoch = 0;
  int64_t step = 0;
  bool complete = false;  // Has a manifest; whether a good one, Open and Verify say.
};

// What lies below a job's checkpoint directory, newest first; in an absent one, nothing.
struct JobDirectory {
  std::vector<int64_t> epochs;                // That have begun.
  std::vector<ListedCheckpoint> checkpoints;  // By (epoch, step).
};
// The epochs alone.
absl::StatusOr<std::vector<int64_t>> ListEpochs(const std::string& directory);
// Lists the directory and those of its epochs, each once. Fails where anything cannot be looked at:
// what this host cannot see must not pass for what is not there.
absl::StatusOr<JobDirectory> ListJobDirectory(const std::string& directory);
// Its checkpoints alone.
absl::StatusOr<std::vector<ListedCheckpoint>> ListCheckpoints(const std::string& directory);
// The paths of the complete ones, whoever wrote them; which of them a job may load, lineage.h says.
absl::StatusOr<std::vector<std::string>> CompleteCheckpoints(const std::string& directory);
std::vector<std::string> PathsOfComplete(const std::vector<ListedCheckpoint>& listed);

// The first of the candidates that verifies, and why the ones before it did not: those were read
// twice, the second time past this machine's cache, and are damaged. None where there are no
// candidates. DATA_LOSS with every reason where there are some and none is good; INTERNAL (EIO)
// or PERMISSION_DENIED where this host cannot read one, which is no reason to take an older one.
struct ChosenCheckpoint {
  std::optional<Checkpoint> checkpoint;
  std::vector<std::string> refused;
};
absl::StatusOr<ChosenCheckpoint> NewestGood(const std::vector<std::string>& candidates,
                                            const Roots& roots = Roots());

// What a path in a spec or on a command line names: the checkpoint there, opened and not verified,
// or else the newest good one of the lineage of a job's checkpoint directory. NOT_FOUND where it is
// neither; other errors as above.
absl::StatusOr<ChosenCheckpoint> FindCheckpoint(const std::string& path,
                                                const Roots& roots = Roots());

}  // namespace trainyard
