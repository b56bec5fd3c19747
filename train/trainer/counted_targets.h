// Counts the targets of a global batch that the loss leaves out (kNotCounted). Loss, gradients and
// metrics are divided by the number of the others, on all ranks and in all micro-batches together.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/collective/collective.h"
#include "models/parallel/mesh.h"
#include "train/step/prefetch.h"

namespace trainyard {

// Returns how many targets of this rank's batch are not counted. 0 on ranks that have the rows of
// another rank, which counts them: the sum over all ranks is that of the global batch. CHECKs that
// the batch has targets.
int64_t UncountedTargets(const StepBatch& batch, const Mesh& mesh);

// The sum over all ranks of `everyone`, which must call this together.
int64_t SumUncounted(const StepBatch& batch, const Mesh& mesh, Collective& everyone);

// OK if some of the targets are counted. Otherwise there is no loss: OUT_OF_RANGE, with the field
// that names the data.
absl::Status CheckCounted(absl::string_view field, int64_t tokens, int64_t uncounted);

}  // namespace trainyard
