// Reads the next step's batch while the current step is computed. The result depends only on the
// position asked for; reading the expected next position in advance only saves time.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "kernels/sequence_part.h"
#include "models/program/input.h"
#include "train/data/batch_reader.h"

namespace trainyard {

// By names of the model's inputs.
using MicroBatchData = std::map<std::string, InputData>;
using StepBatch = std::vector<MicroBatchData>;  // This rank's, by micro-batch.

// Returns a context rank's part of a micro-batch: its rows of each sequence.
std::vector<int32_t> RowsOf(const SequencePart& part, std::span<const int32_t> sequences);

// Reads all micro-batches of one step now: "tokens" and "targets" of each, [micro * rows].
absl::StatusOr<StepBatch> ReadStepBatch(const BatchReader& reader, int64_t micro,
                                        const SequencePart& part, int64_t position);

// Owns a thread. Only one thread may call it.
class Prefetcher {
 public:
  // `reader` must outlive the prefetcher. `micro` is the number of sequences of a micro-batch,
  // `part` this rank's rows of each, and `stride` the distance between the positions of two steps.
  Prefetcher(const BatchReader& reader, int64_t micro, const SequencePart& part, int64_t stride);
  ~Prefetcher();

  // Returns the batch at this position, then starts to read the batch at position + stride. Errors
  // are those of BatchReader.
  absl::StatusOr<StepBatch> Take(int64_t position);

 private:
  void Run();

  const BatchReader& reader_;
  const int64_t micro_;
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
