// Computes the model FLOPs of a step by the convention "exact" (models/arch/flops.h). Gradients
// that frozen parameters make unnecessary are not counted.

#pragma once

#include <vector>

#include "kernels/collective/collective.h"
#include "kernels/device/sequence_part.h"
#include "models/arch/flops.h"
#include "models/parallel/mesh.h"
#include "train/config/job_config.h"
#include "train/step/prefetch.h"

namespace trainyard {

class ModelFlops {
 public:
  // `job` must be valid.
  ModelFlops(const JobConfig& job, const ModelConfig& model);

  // Returns the FLOPs of the whole global batch. `batch` is this rank's batch, with the rows of
  // `part`. If documents share sequences, the FLOPs depend on the documents, and all ranks of
  // `everyone` must call this together. Otherwise nothing is sent.
  double OfStep(const StepBatch& batch, const SequencePart& part, const Mesh& mesh,
                Collective& everyone) const;

 private:
  double of_sequences_;              // If each sequence were one document.
  std::vector<PairFlops> per_pair_;  // Empty: each sequence is one document.
};

}  // namespace trainyard
