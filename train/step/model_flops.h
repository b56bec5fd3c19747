// The model FLOPs of a step, by the convention "exact" (models/arch/flops.h), without the gradients
// that frozen parameters do not need.

#pragma once

#include <vector>

#include "kernels/collective/collective.h"
#include "kernels/sequence_part.h"
#include "models/arch/flops.h"
#include "models/parallel/mesh.h"
#include "train/config/job_config.h"
#include "train/step/prefetch.h"

namespace trainyard {

class ModelFlops {
 public:
  // `job` must be valid.
  ModelFlops(const JobConfig& job, const ModelConfig& model);

  // Of the whole global batch. `batch` is this rank's, with the rows of `part`. If documents share
  // sequences, the pairs that the mask allows depend on them, and all ranks of `everyone` call this
  // together; otherwise nothing is sent.
  double OfStep(const StepBatch& batch, const SequencePart& part, const Mesh& mesh,
                Collective& everyone) const;

 private:
  double of_sequences_;              // If each sequence were one document.
  std::vector<PairFlops> per_pair_;  // Empty: each sequence is one document.
};

}  // namespace trainyard
