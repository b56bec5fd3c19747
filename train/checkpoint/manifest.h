// What a checkpoint's manifest.json says: which tensors of which run lie where. docs/formats.md has
// the file's layout. Everything in a parsed manifest has been checked for consistency: boxes tile
// their tensors and fill their files.

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
#include "train/checkpoint/box.h"

namespace trainyard {

// 2 is written, and 3 where the checkpoint names a base; 1, without pieces, is read.
inline constexpr int64_t kCheckpointVersion = 3;
inline constexpr char kManifestName[] = "manifest.json";
inline constexpr uint64_t kManifestLimitBytes = 256 << 20;

enum class TensorKind : uint8_t { kParameter, kFirstMoment, kSecondMoment };
const char* Name(TensorKind kind);  // "parameter", "m", "v".

// A box as stored: rows contiguous, little-endian.
struct StoredBox {
  Box box;
  std::string file = {};  // Name within the checkpoint's directory.
  uint64_t file_offset = 0;
  std::string sha256 = {};  // Of its bytes, hexadecimal.
  Shape piece = {};  // The shape of its pieces, whose checksums follow it (pieces.h); rank 0: none.
};

struct StoredTensor {
  std::string name;  // The parameter's global name.
  TensorKind kind = TensorKind::kParameter;
  DType dtype = DType::kF32;
  Shape shape;  // Global.
  std::vector<StoredBox> boxes;
};

// The ranks that wrote it. Resume is exact to the bit under the same layout and thread count.
struct CheckpointLayout : AxisSizes<int64_t> {
  int64_t data = 1;
  std::string schedule = {};  // Of the pipeline, and how much is sharded: as in a job spec,
  std::string zero = {};      // "ONE_F_ONE_B", "OPTIMIZER". Empty: not recorded.
  int64_t threads = 1;        // Of each rank.
  bool operator==(const CheckpointLayout&) const = default;
};
std::string ToString(const CheckpointLayout& layout);

// The frozen parameters of a job, which do not change and are written once: a directory of its own
// beside the job's checkpoints (BasePath), laid out like one.
struct BaseReference {
  int64_t epoch = 0;   // Of the attempt that wrote it.
  std::string sha256;  // Of its manifest, which has the checksums of all its data.
  bool operator==(const BaseReference&) const = default;
};

// Where a run stands. Random numbers are a pure function of (seed, name, index) and of the step, so
// the seed is the whole random state.
struct RunState {
  std::string job_id;
  int64_t epoch = 0;          // The attempt that wrote it.
  int64_t step = 0;           // Finished steps.
  int64_t data_position = 0;  // Samples consumed.
  uint64_t seed = 0;
  ModelConfig model;
  CheckpointLayout layout;
  int64_t sequence = 0;                    // Tokens of a sample, for `generate`; 0: not known.
  bool deterministic = true;               // As in the job spec.
  std::string build;                       // Of the program that wrote it.
  std::optional<BaseReference> base = {};  // Holds the frozen parameters; absent: there are none.
};

struct Manifest {
  RunState state;
  std::vector<StoredTensor> tensors;           // Sorted by name, then kind; unique.
  std::map<std::string, uint64_t> file_sizes;  // What the boxes add up to.
  // Of the text that it was parsed from. Two with the same one are of the same checkpoint.
  std::string sha256;

  uint64_t size_bytes() const;
  const StoredTensor* Find(absl::string_view name, TensorKind kind) const;  // Null where absent.
};

// INVALID_ARGUMENT where the boxes do not tile their tensors or files, names are not legal, numbers
// out of range.
absl::StatusOr<Manifest> MakeManifest(RunState state, std::vector<StoredTensor> tensors);

// The text of manifest.json, with its own checksum.
std::string ToJson(const Manifest& manifest);

// What one rank tells rank 0 of what it wrote; any tensors, not checked for consistency.
std::string TensorsToJson(const std::vector<StoredTensor>& tensors);
absl::StatusOr<std::vector<StoredTensor>> ParseTensors(absl::string_view text);

// DATA_LOSS where the text is damaged; UNIMPLEMENTED for another version; INVALID_ARGUMENT as
// MakeManifest.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text);

}  // namespace trainyard
