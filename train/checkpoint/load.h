// Reads checkpoints. All data are checked before they are used: the manifest against its own
// checksum when it is opened, and a box against the checksum of the box or of the pieces that are
// read (pieces.h). Each rank checks what it reads, so no rank reads data only to check them for
// another.

#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/roots.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/target_box.h"

namespace trainyard {

class DataFiles;

// A checkpoint that was opened. Immutable, thread-safe.
class Checkpoint {
 public:
  // Opens the checkpoint in the directory `path`, and the base that it names. Checks the manifest,
  // the size of every file, and that a directory name "epoch-E/step-N" agrees with the manifest.
  // Errors name file and tensor:
  // - NOT_FOUND: there is no checkpoint.
  // - DATA_LOSS: the checkpoint or its base is damaged, or the base is missing.
  // - UNIMPLEMENTED: another version wrote it.
  // - INTERNAL: a read failed (EIO).
  static absl::StatusOr<Checkpoint> Open(const std::string& path, const Roots& roots = Roots());

  const std::string& path() const { return own_.path; }
  // Does not contain what is in the base.
  const Manifest& manifest() const { return own_.manifest; }
  const RunState& state() const { return manifest().state; }
  // The manifest of the base; null if there is no base.
  const Manifest* base() const { return base_ ? &base_->manifest : nullptr; }
  // Returns null if neither the checkpoint nor its base has the tensor. A weight that the base has
  // in NF4 (models/program/nf4.h) is a tensor of the numbers that training used, without boxes.
  const StoredTensor* Find(absl::string_view name, TensorKind kind) const;

  // Reads everything. DATA_LOSS: names the first damaged file and tensor.
  absl::Status Verify() const;

  // Returns the SHA-256 of the contents, which is the same for every layout (docs/formats.md). Also
  // does the work of Verify.
  absl::StatusOr<std::string> Digest() const;

  // Checks the base that the checkpoints of the job's directory name. Returns an error if the base
  // is not there, is another one, or has a file that is too short. A base that looks wrong is
  // looked at once more past the cache. Reads no tensors.
  static absl::Status CheckBase(const std::string& directory, const BaseReference& base);

  // INVALID_ARGUMENT: names the first field that differs and must not differ for this use.
  absl::Status CheckModel(const ModelConfig& model, MayDiffer use = MayDiffer::kAlways) const;

  // Fills the boxes, whatever layout wrote the checkpoint. Reads only the pieces that hold the
  // boxes, which is hardly more than the boxes' own bytes. If boxes lie in a device's memory,
  // `to_device` copies them there, one after the other. If `absent` is not null, the boxes of
  // tensors that the checkpoint lacks keep their values, and `absent` receives the names of these
  // tensors.
  //
  // INVALID_ARGUMENT: the checkpoint lacks a tensor, or has it with another shape or dtype; no box
  // is changed, and the message names the first such tensor. DATA_LOSS: as Verify, for the data
  // that were read; the boxes' contents are undefined.
  absl::Status Load(std::span<const TargetBox> boxes, const BoxCopy& to_device = nullptr,
                    std::set<std::string>* absent = nullptr) const;

 private:
  // A directory with a manifest: the checkpoint itself, or its base.
  struct Part {
    std::string path;
    Manifest manifest;
  };
  static absl::StatusOr<Part> OpenPart(const std::string& path);
  static absl::Status CheckSame(const Manifest& base, const BaseReference& wanted);
  absl::Status OpenBase(const Roots& roots);
  // Finds the weights that the base has in NF4. DATA_LOSS: their parts do not fit together.
  absl::Status FindNf4();
  // Writes the box of such a weight, in the dtype that Find says, to `data`.
  absl::Status ReadNf4(const StoredTensor& weight, const Box& box, char* data,
                       DataFiles& files) const;
  template <typename F>
  absl::Status ForEachPart(F&& f) const;

  Part own_;
  std::optional<Part> base_;
  std::map<std::string, StoredTensor, std::less<>> in_nf4_;  // By the weight's name.
};

struct ListedCheckpoint {
  std::string path;
  int64_t epoch = 0;
  int64_t step = 0;
  bool complete = false;  // Has a manifest. Open and Verify check the manifest.
};

// The content of a job's checkpoint directory, newest first. Empty if the directory does not exist.
struct JobDirectory {
  std::vector<int64_t> epochs;                // Epochs that have begun.
  std::vector<ListedCheckpoint> checkpoints;  // By (epoch, step).
};
// Lists only the epochs.
absl::StatusOr<std::vector<int64_t>> ListEpochs(const std::string& directory);
// Lists the directory and the directories of its epochs, each once. Returns an error if any of them
// cannot be read: data that this host cannot see must not pass for data that do not exist.
absl::StatusOr<JobDirectory> ListJobDirectory(const std::string& directory);
// Returns the directory of the base that the checkpoint at `path`, a CheckpointPath, names, or
// nullopt if it names none. Reads only the manifest.
absl::StatusOr<std::optional<std::string>> BaseOf(const std::string& path);
// Lists only the checkpoints.
absl::StatusOr<std::vector<ListedCheckpoint>> ListCheckpoints(const std::string& directory);
// Returns the paths of the complete checkpoints of all attempts. lineage.h says which of them a job
// may load.
absl::StatusOr<std::vector<std::string>> CompleteCheckpoints(const std::string& directory);
std::vector<std::string> PathsOfComplete(const std::vector<ListedCheckpoint>& listed);

// Reads the needed parts of an opened checkpoint, and so checks them. Called again after a failure.
using UseCheckpoint = std::function<absl::Status(const Checkpoint&)>;
inline absl::Status VerifyAll(const Checkpoint& checkpoint) { return checkpoint.Verify(); }

// Whether an error of reading a checkpoint says that the checkpoint is damaged or gone. Others do
// not: a checkpoint of a later version is good, and this program is too old; and a file that could
// not be read may be read later.
bool SaysThatItIsNotGood(const absl::Status& status);

// Opens a checkpoint and calls `use`. If that fails, except with INVALID_ARGUMENT, drops this
// machine's cache of the files and tries once more. Errors are those of Open and `use`.
absl::StatusOr<Checkpoint> ReadPastCache(const std::string& path, const Roots& roots,
                                         const UseCheckpoint& use);

// The same where no other checkpoint will do. INTERNAL (EIO) and PERMISSION_DENIED mean that this
// host cannot read the checkpoint, which is no reason to load an older one. Other errors are
// those of ReadPastCache.
absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& path, const Roots& roots,
                                          const UseCheckpoint& use);

// The first candidate for which `read` succeeds, and the reasons why the candidates before it were
// refused: they are damaged (DATA_LOSS) or incomplete (NOT_FOUND, FAILED_PRECONDITION). Any other
// error ends the search and is returned, also UNIMPLEMENTED for another version. If there are no
// candidates, there is no checkpoint. DATA_LOSS, with every reason: all candidates were refused.
struct ChosenCheckpoint {
  std::optional<Checkpoint> checkpoint;
  std::vector<std::string> refused;
};
using ReadCandidate = std::function<absl::StatusOr<Checkpoint>(const std::string& path)>;
absl::StatusOr<ChosenCheckpoint> FirstGood(const std::vector<std::string>& candidates,
                                           const ReadCandidate& read);

// The directory that a path in a spec or on a command line names.
struct NamedDirectory {
  std::string directory;  // Canonical.
  bool best = false;      // Its best checkpoint is wanted (kBestName), and not its newest one.
};
// Errors: those of Roots::FindDirectory.
absl::StatusOr<NamedDirectory> FindNamed(const std::string& path, const Roots& roots = Roots());

// Returns the checkpoints that a path in a spec or on a command line stands for, in the order in
// which they are tried: the checkpoint at the path, or else those of the lineage of a job's
// checkpoint directory, the newest one first. "DIR/best" stands for those with a validation loss,
// the one with the lowest loss first (best.h). Before these come damaged ones, to be named, since
// each may be the best; the log names those that this host cannot read, which are left out.
// NOT_FOUND: the path is neither, or no checkpoint has a loss. INVALID_ARGUMENT: it is a base's.
absl::StatusOr<std::vector<std::string>> FindCheckpoints(const std::string& path,
                                                         const Roots& roots = Roots());
// Returns the first of these checkpoints for which `use` succeeds. Errors are those of
// FindCheckpoints and FirstGood.
absl::StatusOr<ChosenCheckpoint> FindCheckpoint(const std::string& path,
                                                const UseCheckpoint& use = VerifyAll,
                                                const Roots& roots = Roots());

}  // namespace trainyard
