// Counts the targets of a global batch that the loss leaves out (kNotCounted). Loss, gradients and
// metrics are divided by the number of the others, on all ranks and in all micro-batches together.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/collective/collective.h"
#include "kernels/device/sequence_part.h"
#include "models/parallel/mesh.h"
#include "train/step/prefetch.h"
#include "train/step/step_runner.h"

namespace trainyard {

// Returns those of this rank's batch, which has the rows `part` of each sequence. None on ranks
// that have the rows of another rank, which counts them: the sum over all ranks is that of the
// global batch. CHECKs that the batch has targets.
BatchCounts CountBatch(const StepBatch& batch, const Mesh& mesh, const SequencePart& part);

// The sum over all ranks of `everyone`, which must call this together.
BatchCounts SumCounts(const StepBatch& batch, const Mesh& mesh, const SequencePart& part,
                      Collective& everyone);

// OK if some of the targets are counted. Otherwise there is no loss: OUT_OF_RANGE, with the field
// that names the data.
absl::Status CheckCounted(absl::string_view field, int64_t tokens, int64_t uncounted);

}  // namespace trainyard
