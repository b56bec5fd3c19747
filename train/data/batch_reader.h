// Which samples make up a step, and which of them a rank reads: a pure function of (seed, samples
// consumed), so that a resumed run goes on where it stopped and the global batch is the same for
// any number of ranks.

#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
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
int64_t SampleAt(SampleOrder order, uint64_t seed, int64_t num_samples, int64_t consumed);

// Thread-safe. Position p of a run is the number of samples consumed before a step (the *data
// position* of a checkpoint); the step's global batch is the samples p .. p + global - 1 of the
// order. Micro-batch i of data rank r takes those from p + (i * data_parallel + r) * micro on.
class BatchReader {
 public:
  // `dataset` outlives the reader. CHECKs that the shape divides.
  BatchReader(const Dataset& dataset, SampleOrder order, uint64_t seed, BatchShape shape);

  int64_t micro_batches() const;  // Of this rank, in a step.
  int64_t sequence() const { return dataset_.sample_tokens() - 1; }

  // tokens and targets, both [micro, sequence]: targets[b, t] is the token after tokens[b, t].
  absl::Status Read(int64_t position, int64_t micro_batch, std::span<int32_t> tokens,
                    std::span<int32_t> targets) const;

 private:
  const Dataset& dataset_;
  const SampleOrder order_;
  const uint64_t seed_;
  const BatchShape shape_;
};

}  // namespace trainyard
