// Reads the next step's batch while the current step is computed. The result depends only on the
// position asked for; reading the expected next position in advance only saves time.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "kernels/device/sequence_part.h"
#include "models/program/input.h"
#include "train/data/batch_reader.h"

namespace trainyard {

using StepBatch = std::vector<MicroBatchData>;  // This rank's, by micro-batch.

// Returns a context rank's part of an input by token: its rows of each sequence. A row has `width`
// elements.
InputData RowsOf(const SequencePart& part, int64_t width, InputData sequences);

// Reads all micro-batches of one step now, each with this rank's rows of all inputs.
absl::StatusOr<StepBatch> ReadStepBatch(const BatchReader& reader, const SequencePart& part,
                                        int64_t position);

// Owns a thread. Only one thread may call it.
class Prefetcher {
 public:
  // `reader` must outlive the prefetcher. `part` is this rank's rows of each sequence, and `stride`
  // the distance between the positions of two steps.
  Prefetcher(const BatchReader& reader, const SequencePart& part, int64_t stride);
  ~Prefetcher();

  // Returns the batch at this position, then starts to read the batch at position + stride. Errors
  // are those of BatchReader.
  absl::StatusOr<StepBatch> Take(int64_t position);

 private:
  void Run();

  const BatchReader& reader_;
  const SequencePart part_;
  const int64_t stride_;
  Mutex mutex_;
  CondVar changed_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<int64_t> wanted_ ABSL_GUARDED_BY(mutex_);  // To be read; none: the thread rests.
  std::optional<absl::StatusOr<StepBatch>> ready_ ABSL_GUARDED_BY(mutex_);  // For ready_position_.
  int64_t ready_position_ ABSL_GUARDED_BY(mutex_) = -1;
  std::thread thread_;
};

}  // namespace trainyard
