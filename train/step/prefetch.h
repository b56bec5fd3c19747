// Reads the next step's batch while the current one is computed. What is read is a pure function of
// the position asked for; guessing the next one only saves time.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "kernels/sequence_part.h"
#include "models/program/input.h"
#include "train/data/batch_reader.h"

namespace trainyard {

using StepBatch = std::vector<MicroBatchData>;  // This rank's, by micro-batch.

// A context rank's part of an input by token: its rows of each sequence. A row has `width`
// elements.
InputData RowsOf(const SequencePart& part, int64_t width, InputData sequences);

// All micro-batches of one step, each with this rank's rows of all inputs, read now.
absl::StatusOr<StepBatch> ReadStepBatch(const BatchReader& reader, const SequencePart& part,
                                        int64_t position);

// Owns a thread. One caller.
class Prefetcher {
 public:
  // `reader` outlives it. `part`: this rank's of each sequence; `stride`: from one step's position
  // to the next one's.
  Prefetcher(const BatchReader& reader, const SequencePart& part, int64_t stride);
  ~Prefetcher();

  // The batch at this position; then starts on the one at position + stride. Errors are those of
  // BatchReader.
  absl::StatusOr<StepBatch> Take(int64_t position);

 private:
  void Run();

  const BatchReader& reader_;
  const SequencePart part_;
  const int64_t stride_;
  Mutex mutex_;
  CondVar changed_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<int64_t> wanted_ ABSL_GUARDED_BY(mutex_);  // Asked of the thread; none: it rests.
  std::optional<absl::StatusOr<StepBatch>> ready_ ABSL_GUARDED_BY(mutex_);  // For ready_position_.
  int64_t ready_position_ ABSL_GUARDED_BY(mutex_) = -1;
  std::thread thread_;
};

}  // namespace trainyard
