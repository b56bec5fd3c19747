// The content of a checkpoint's manifest.json: the tensors of a run and their places in files.
// docs/formats.md describes the file. A parsed manifest has been checked for consistency: boxes
// tile their tensors and fill their files.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job_axes.h"
#include "kernels/device/tensor.h"
#include "models/arch/config.h"
#include "models/program/low_rank.h"
#include "train/checkpoint/box.h"

namespace trainyard {

// Version 2 is written, 3 if the checkpoint names a base, 4 if it has an adapter, or 5 if weights
// are in NF4. Version 1, without pieces, is read.
inline constexpr int64_t kCheckpointVersion = 5;
inline constexpr char kManifestName[] = "manifest.json";
inline constexpr uint64_t kManifestLimitBytes = 256 << 20;

enum class TensorKind : uint8_t { kParameter, kFirstMoment, kSecondMoment };
const char* Name(TensorKind kind);  // "parameter", "m", "v".

// A box as stored: rows contiguous, little-endian.
struct StoredBox {
  Box box;
  std::string file = {};  // Name within the checkpoint's directory.
  uint64_t file_offset = 0;
  std::string sha256 = {};  // SHA-256 of the box's bytes, hexadecimal.
  Shape piece = {};         // Shape of a piece (pieces.h); rank 0: no pieces.
};

struct StoredTensor {
  std::string name;  // The parameter's global name.
  TensorKind kind = TensorKind::kParameter;
  DType dtype = DType::kF32;
  Shape shape;  // Global.
  std::vector<StoredBox> boxes;
};

// The layout of the ranks that wrote a checkpoint. A resumed run has the same bits if layout and
// thread count are the same.
struct CheckpointLayout : AxisSizes<int64_t> {
  int64_t data = 1;
  std::string schedule = {};  // As in a job spec; empty: not recorded.
  std::string zero = {};      // As in a job spec; empty: not recorded.
  int64_t threads = 1;        // Per rank.
  bool operator==(const CheckpointLayout&) const = default;
};
std::string ToString(const CheckpointLayout& layout);

// Names the frozen parameters of a job. They do not change and are written once, to a directory of
// their own beside the job's checkpoints (BasePath), in the format of a checkpoint.
struct BaseReference {
  int64_t epoch = 0;   // The attempt that wrote the base.
  std::string sha256;  // SHA-256 of the base's manifest, which has all checksums.
  bool operator==(const BaseReference&) const = default;
};

// What a job measured on held-out data after the step of a checkpoint.
struct ValidationResult {
  double loss = 0;      // Finite.
  std::string measure;  // Losses of the same measure can be compared (train/trainer/validation.h).
  bool operator==(const ValidationResult&) const = default;
};

// The progress of a run. Random numbers are a pure function of (seed, name, index) and of the step,
// so the seed is the whole random state.
struct RunState {
  std::string job_id;
  int64_t epoch = 0;          // The attempt that wrote the checkpoint.
  int64_t step = 0;           // Finished steps.
  int64_t data_position = 0;  // Samples consumed.
  uint64_t seed = 0;
  ModelConfig model;
  CheckpointLayout layout;
  bool bf16_weights = false;               // Forward read the weights of layers in bf16.
  int64_t sequence = 0;                    // Tokens of a sample, for `generate`; 0: not known.
  bool deterministic = true;               // As in the job spec.
  std::string build;                       // The program that wrote the checkpoint.
  std::optional<BaseReference> base = {};  // Has the frozen parameters; absent: there are none.
  // The low-rank adapters that the checkpoint has beside parameters; absent: there are none.
  std::optional<LoraNumbers> adapter = {};
  std::optional<ValidationResult> validation = {};  // Absent: the state was not validated.
};

struct Manifest {
  RunState state;
  std::vector<StoredTensor> tensors;           // Sorted by name, then kind; unique.
  std::map<std::string, uint64_t> file_sizes;  // Sums of the boxes' sizes.
  // SHA-256 of the text from which the manifest was parsed. Manifests of the same checkpoint have
  // the same SHA-256.
  std::string sha256;

  uint64_t size_bytes() const;
  const StoredTensor* Find(absl::string_view name, TensorKind kind) const;  // Null where absent.
};

// INVALID_ARGUMENT: boxes do not tile their tensors or files, a name is not legal, or a number is
// out of range.
absl::StatusOr<Manifest> MakeManifest(RunState state, std::vector<StoredTensor> tensors);

// Returns the text of manifest.json, with its own checksum.
std::string ToJson(const Manifest& manifest);

// The list of the tensors that one rank wrote, as the rank sends it to rank 0. The tensors are not
// checked for consistency.
std::string TensorsToJson(const std::vector<StoredTensor>& tensors);
absl::StatusOr<std::vector<StoredTensor>> ParseTensors(absl::string_view text);

// DATA_LOSS: the text is damaged. UNIMPLEMENTED: another version wrote it. INVALID_ARGUMENT: as
// MakeManifest.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text);

}  // namespace trainyard
