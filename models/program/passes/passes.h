// Edits of a recorded program, in the order in which RecordTraining applies them.

#pragma once

#include <cstddef>

#include "models/model.h"
#include "models/program/recorder.h"

namespace trainyard {

// Walks the forward list in reverse and records the backward lists. Where a value is used more than
// once, its later gradients are added to the first.
void RecordBackward(Recorder& recorder);

// Removes instances whose outputs nobody reads and that have no effect of their own.
void RemoveDead(Program& program);

// Places the storages in the flat buffers: block by block, within a block those with weight decay
// first, so that the optimizer's ranges are few. Each starts on a multiple of kFlatAlignment.
void LayOutParameters(Program& program);
inline constexpr int64_t kFlatAlignment = 64;  // Elements.

// Lists init and prepare: initial parameters, zero moments, compute copies.
void RecordInitialization(Recorder& recorder);

// List optimizer: wait, norm and clip factor of the whole gradient, AdamW per range of equal decay.
void RecordOptimizer(Recorder& recorder, const AdamWOptions& options);

// Inserts ReduceBucket instances, each right after the last writer of its gradients, and ReduceLoss
// at the end of the backward pass. A bucket is a contiguous range of the gradient buffer, closed as
// soon as it has `bucket_bytes`, filled in the order of the backward pass: from the end.
void InsertBuckets(Program& program, size_t bucket_bytes);

}  // namespace trainyard
