// Says which samples are the batch of a step and which of these samples a rank reads. The batch
// depends only on the seed and on the number of samples consumed before. So a resumed run goes on
// where the run stopped, and the global batch is the same for any number of ranks.

#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "models/program/input.h"
#include "train/data/dataset.h"

namespace trainyard {

struct BatchShape {
  int64_t global = 0;  // Sequences of a step on all ranks; a multiple of micro * data_parallel.
  int64_t micro = 0;   // Sequences that a rank computes at once.
  int64_t data_parallel = 1;  // Size of the data axis.
  int64_t data_rank = 0;      // This rank's coordinate on it.
};

enum class SampleOrder {
  kShuffled,    // Each epoch reads every sample once, in a new permutation.
  kSequential,  // For validation: the order of the dataset. After the last sample comes the first.
};

// Returns the sample that is read after `consumed` other samples.
SampleId SampleAt(SampleOrder order, uint64_t seed, int64_t num_samples, int64_t consumed);

// The data of one micro-batch, by the names of the model's inputs.
using MicroBatchData = std::map<std::string, InputData>;

// Reads the micro-batches of one rank. Position p of a run is the number of samples consumed before
// a step (the *data position* of a checkpoint). The global batch of the step is the samples p to
// p + global - 1 of the order. Micro-batch i of data rank r has the `micro` samples from
// p + (i * data_parallel + r) * micro on. Thread-safe.
class BatchReader {
 public:
  // `dataset` must outlive the reader. A dataset that is shuffled itself is read in its order,
  // whatever `order` says. CHECKs that micro * data_parallel divides global.
  BatchReader(const Dataset& dataset, SampleOrder order, uint64_t seed, BatchShape shape);

  int64_t micro_batches() const;  // Micro-batches of this rank in a step.
  // The number of a micro-batch's first sample in the global batch, and that of its samples.
  int64_t FirstSample(int64_t micro_batch) const;
  int64_t micro() const { return shape_.micro; }
  const std::vector<InputSpec>& inputs() const { return dataset_.inputs(); }

  // Returns all inputs of one micro-batch: whole sequences, one after the other. CHECKs
  // 0 <= micro_batch < micro_batches(). Errors as Dataset::Read.
  absl::StatusOr<MicroBatchData> Read(int64_t position, int64_t micro_batch) const;

 private:
  const Dataset& dataset_;
  const SampleOrder order_;
  const uint64_t seed_;
  const BatchShape shape_;
};

}  // namespace trainyard
