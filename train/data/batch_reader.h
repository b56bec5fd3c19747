// Which samples make up a step, and which of them a rank reads: a pure function of (seed, samples
// consumed), so that a resumed run goes on where it stopped and the global batch is the same for
// any number of ranks.

#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "models/program/input.h"
#include "train/data/dataset.h"

namespace trainyard {

struct BatchShape {
  int64_t global = 0;  // Sequences a step over all ranks; a multiple of micro * data_parallel.
  int64_t micro = 0;   // Sequences a rank computes at once.
  int64_t data_parallel = 1;  // Size of the data axis.
  int64_t data_rank = 0;      // This rank's coordinate on it.
};

enum class SampleOrder {
  kShuffled,    // A new permutation every epoch; every sample once an epoch.
  kSequential,  // For validation: always the same samples. After the last comes the first again.
};

// The sample that is the `consumed`-th to be read, from 0.
SampleId SampleAt(SampleOrder order, uint64_t seed, int64_t num_samples, int64_t consumed);

// By the names of the model's inputs.
using MicroBatchData = std::map<std::string, InputData>;

// Thread-safe. Position p of a run is the number of samples consumed before a step (the *data
// position* of a checkpoint); the step's global batch is the samples p .. p + global - 1 of the
// order. Micro-batch i of data rank r takes those from p + (i * data_parallel + r) * micro on.
class BatchReader {
 public:
  // `dataset` outlives the reader. CHECKs that the shape divides.
  BatchReader(const Dataset& dataset, SampleOrder order, uint64_t seed, BatchShape shape);

  int64_t micro_batches() const;  // Of this rank, in a step.
  const std::vector<InputSpec>& inputs() const { return dataset_.inputs(); }

  // All inputs of one micro-batch: whole sequences, one after the other. Errors as Dataset::Read.
  absl::StatusOr<MicroBatchData> Read(int64_t position, int64_t micro_batch) const;

 private:
  const Dataset& dataset_;
  const SampleOrder order_;
  const uint64_t seed_;
  const BatchShape shape_;
};

}  // namespace trainyard
