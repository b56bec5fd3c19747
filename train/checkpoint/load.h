// Reads checkpoints. Nothing is used that was not checked: the manifest against its own checksum
// when it is opened, and what is read of a box against the checksum of the box or of its pieces
// (pieces.h), by whoever reads it. So no rank has to read what another one loads.

#pragma once

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/roots.h"
#include "train/checkpoint/manifest.h"

namespace trainyard {

// What may be done to the numbers of a tensor that a checkpoint has in another dtype.
enum class Conversion : uint8_t {
  kNone,
  kWiden,  // To a dtype that holds each of them exactly.
  kRound,  // To any, to the nearest even (kernels/cast.h).
};

// A box of a tensor to be filled in this rank's memory, rows contiguous. A view.
struct TargetBox {
  std::string name;
  TensorKind kind = TensorKind::kParameter;
  DType dtype = DType::kF32;
  Shape global_shape;
  Box box;
  void* data = nullptr;
  Conversion conversion = Conversion::kNone;
};

// Immutable, thread-safe.
class Checkpoint {
 public:
  // `path` is the directory of one checkpoint. Checks the manifest, that every file has its size,
  // and that a name "epoch-E/step-N" is the manifest's; the same of the base that it names. Errors
  // name file and tensor: NOT_FOUND where there is none, DATA_LOSS where it or its base is damaged,
  // or the base is away, UNIMPLEMENTED of another version, INTERNAL where the read itself failed
  // (EIO).
  static absl::StatusOr<Checkpoint> Open(const std::string& path, const Roots& roots = Roots());

  const std::string& path() const { return own_.path; }
  // Without what lies in the base.
  const Manifest& manifest() const { return own_.manifest; }
  const RunState& state() const { return manifest().state; }
  // Of the base; null where there is none.
  const Manifest* base() const { return base_ ? &base_->manifest : nullptr; }
  // Null where neither has it.
  const StoredTensor* Find(absl::string_view name, TensorKind kind) const;

  // Reads everything. DATA_LOSS names the first damaged file and tensor.
  absl::Status Verify() const;

  // SHA-256 over contents alone, whatever the layout (docs/formats.md). Verifies on the way.
  absl::StatusOr<std::string> Digest() const;

  // Checks the base that the checkpoints of the job's directory name. Returns an error if the base
  // is not there, is another one, or has a file that is too short. A base that looks wrong is
  // looked at once more past the cache. Reads no tensors.
  static absl::Status CheckBase(const std::string& directory, const BaseReference& base);

  // INVALID_ARGUMENT names the first field that differs and may not for such a use.
  absl::Status CheckModel(const ModelConfig& model, MayDiffer use = MayDiffer::kAlways) const;

  // Fills the boxes, under whatever layout they were written, reading the pieces that hold them:
  // hardly more than the boxes' own bytes. INVALID_ARGUMENT names the first tensor that the
  // checkpoint does not have, or has with another shape or dtype, and then no box is touched.
  // DATA_LOSS as Verify, for what was read; the boxes hold anything then. Where they lie in a
  // device's memory, `to_device` copies one after the other there. With `absent`, the boxes of
  // tensors that the checkpoint does not have stay as they are, and their names are added there.
  absl::Status Load(std::span<const TargetBox> boxes, const BoxCopy& to_device = nullptr,
                    std::set<std::string>* absent = nullptr) const;

 private:
  // A directory with a manifest.
  struct Part {
    std::string path;
    Manifest manifest;
  };
  static absl::StatusOr<Part> OpenPart(const std::string& path);
  static absl::Status CheckSame(const Manifest& base, const BaseReference& wanted);
  absl::Status OpenBase(const Roots& roots);
  template <typename F>
  absl::Status ForEachPart(F&& f) const;

  Part own_;
  std::optional<Part> base_;
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
// The directory of the base that the checkpoint at `path`, a CheckpointPath, names; none where it
// has no base. Reads its manifest alone.
absl::StatusOr<std::optional<std::string>> BaseOf(const std::string& path);
// Its checkpoints alone.
absl::StatusOr<std::vector<ListedCheckpoint>> ListCheckpoints(const std::string& directory);
// The paths of the complete ones, whoever wrote them; which of them a job may load, lineage.h says.
absl::StatusOr<std::vector<std::string>> CompleteCheckpoints(const std::string& directory);
std::vector<std::string> PathsOfComplete(const std::vector<ListedCheckpoint>& listed);

// Reads what is wanted of an opened checkpoint, and so checks it. Called again after a failure.
using UseCheckpoint = std::function<absl::Status(const Checkpoint&)>;
inline absl::Status VerifyAll(const Checkpoint& checkpoint) { return checkpoint.Verify(); }

// Opens a checkpoint and uses it. What fails is tried once more, past this machine's cache.
// INTERNAL (EIO) and PERMISSION_DENIED say that this host cannot read it, which is no reason to
// take an older one; other errors are those of Open and `use`.
absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& path, const Roots& roots,
                                          const UseCheckpoint& use);

// The first of the candidates that `read` returns, and why the ones before it were refused: they
// are damaged (DATA_LOSS) or incomplete (NOT_FOUND, FAILED_PRECONDITION). Any other error ends the
// search, and is returned: one of another version too (UNIMPLEMENTED). None where there are no
// candidates; DATA_LOSS with every reason where all are refused.
struct ChosenCheckpoint {
  std::optional<Checkpoint> checkpoint;
  std::vector<std::string> refused;
};
using ReadCandidate = std::function<absl::StatusOr<Checkpoint>(const std::string& path)>;
absl::StatusOr<ChosenCheckpoint> FirstGood(const std::vector<std::string>& candidates,
                                           const ReadCandidate& read);

// What a path in a spec or on a command line names, newest first: the checkpoint there, or else
// those of the lineage of a job's checkpoint directory. NOT_FOUND where it is neither.
absl::StatusOr<std::vector<std::string>> FindCheckpoints(const std::string& path,
                                                         const Roots& roots = Roots());
// The first of them that `use` finds good. Errors of the above.
absl::StatusOr<ChosenCheckpoint> FindCheckpoint(const std::string& path,
                                                const UseCheckpoint& use = VerifyAll,
                                                const Roots& roots = Roots());

}  // namespace trainyard
