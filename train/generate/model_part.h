// A rank's part of a model that computes logits: the whole model, or what one of the tensor ranks
// has that hold the model together (tensor_gang.h). The rank that has the texts calls Load and the
// functions of its part. The other ranks of its gang call FollowLeader, and compute the same.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device/backend.h"
#include "models/model.h"
#include "models/program/executable.h"
#include "train/checkpoint/load.h"
#include "train/generate/growing_texts.h"
#include "train/generate/tensor_gang.h"

namespace trainyard {

// What a part is recorded for. The number of ranks divides `sequence`, and `texts` if there is a
// cache.
struct PartSizes {
  int64_t sequence = 0;  // As in RecordOptions, and the next two.
  int64_t cache = 0;
  int64_t texts = 1;
  // Whether matrices stay in bf16, if the precision and the adapter allow it.
  bool narrow = false;
};

// The device of this rank, and the number of its threads if it is a CPU.
struct PartDevice {
  const Backend& backend;
  int threads = 1;
};

// Returns how this rank's part is recorded, and the model as the ranks of the gang divide it. Null:
// this rank is alone. Weights in f64 stay in f64; others are widened to f32. INVALID_ARGUMENT: the
// ranks cannot divide the model (DividedOverTensorRanks).
struct PartRecord {
  ModelConfig model;
  RecordOptions options;
};
absl::StatusOr<PartRecord> RecordOf(const Checkpoint& checkpoint, const PartSizes& sizes,
                                    const TensorGang* gang);

// Not thread-safe. Everything may throw DeviceError.
class ModelPart {
 public:
  // Loads the model, and all parts of it if `gang` is not null: then only its rank 0 calls this.
  // `fewer_texts`: if a GPU has no memory for so many texts, there are half as many, or fewer. The
  // backend and the gang must outlive the part. Errors, on which all ranks agree: those of RecordOf
  // and LoadSnapshot. FAILED_PRECONDITION: a GPU has no memory for so many texts.
  // RESOURCE_EXHAUSTED: a CPU has no memory for the part.
  static absl::StatusOr<std::unique_ptr<ModelPart>> Load(const Checkpoint& checkpoint,
                                                         const PartSizes& sizes, bool fewer_texts,
                                                         const PartDevice& device,
                                                         TensorGang* gang);

  Executable& executable() { return *executable_; }
  const Program& program() const { return executable_->program(); }
  // Columns of the whole logits. Those after the vocabulary are padding.
  int64_t columns() const;

  // Runs the whole window for these tokens, at most program().sequence.
  void Run(std::span<const int32_t> tokens);
  // As ReplayTokens.
  void Replay(int chunk, std::span<const NewToken> tokens);
  // Reads some rows, in ascending order, of the output of this name: [rows, columns()], the parts
  // of all ranks. Ranks other than 0 send their part to rank 0, and keep that part alone.
  void ReadLogits(const std::string& output, std::span<const int64_t> rows,
                  std::vector<float>& logits);

 private:
  friend absl::Status FollowLeader(TensorGang& gang, const PartDevice& device);

  explicit ModelPart(TensorGang* gang) : gang_(gang) {}
  // What every rank of the gang does.
  static absl::StatusOr<std::unique_ptr<ModelPart>> Bind(const Checkpoint& checkpoint,
                                                         PartSizes sizes, bool fewer_texts,
                                                         const PartDevice& device,
                                                         TensorGang* gang);
  // Makes the executable. Returns whether a GPU has memory for it.
  absl::StatusOr<bool> Allocate(const Checkpoint& checkpoint, const PartSizes& sizes,
                                const PartDevice& device);
  absl::Status Agree(const absl::Status& mine) const;
  void Tell(TensorGang::Order order, std::span<const int64_t> numbers);

  TensorGang* const gang_;
  std::unique_ptr<Executable> executable_;
};

// Does on this rank what rank 0 of the gang does on its own, and returns OK when rank 0 has ended
// the gang's work (TensorGang::Order::kEnd). Errors of loading, on which the ranks agree, are rank
// 0's to report: this rank then waits for what comes next. May throw DeviceError.
absl::Status FollowLeader(TensorGang& gang, const PartDevice& device);

}  // namespace trainyard
