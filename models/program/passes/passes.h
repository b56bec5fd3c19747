// Edits of a recorded program, in the order in which RecordTraining applies them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "models/parallel/zero.h"
#include "models/program/optimizer/optimizer.h"
#include "models/program/passes/options.h"
#include "models/program/recorder.h"

namespace trainyard {

// Replaces pairs of ops of a list by one op that does the work of both: the add of a residual with
// the norm of the sum, and a product with GELU. The table in fuse.cc lists the pairs. Call this for
// the forward list before RecordBackward, because a fused op records its own backward. Call this
// for the backward list before Recompute, because Recompute puts copies of forward ops into the
// backward list.
//
// Only ops of the same block are fused. Stages send the values that pass from block to block, and
// recompute starts from them. If a norm were fused with the last add of the block before, its block
// would start from one more value, and the program would change where the model is cut. An
// activation that is to be computed again is not fused with its product: the fused op computes the
// activation from sums that were never rounded, and computing it again from the stored product
// would give other bits.
void Fuse(Program& program, List list, const RecomputeOptions& recompute = {});

// Drops each value that crosses a cut of the model if no later chunk needs it for a loss, an effect
// or an output. Call this for the forward list before RecordBackward.
void DropUnreadCrossings(Program& program);

// Walks the forward list in reverse and records the backward lists. If a value is used more than
// once, its later gradients are added to the first. A value that depends on no trainable parameter
// has no gradient, so backward ends there.
void RecordBackward(Recorder& recorder);

// Removes each instance that has no effect and whose outputs are not read. Narrows the other
// instances to the outputs that are read.
void RemoveDead(Program& program);

// Reduces the program of a whole model that is cut into parts to the parts that this rank's
// pipeline stage runs. `stages` has the stage of each part. Marks the parameters that several
// stages share, and writes the numbers of these stages to the mesh.
void KeepStage(Program& program, const std::vector<int>& stages);

// Makes the backward lists read values that are computed again, so that the values that `options`
// name need not be kept after forward. Each instance is computed again at most once, by a copy in
// list kBackwardInput right before the first instance that reads its output. This also holds for
// collectives, which are at the same place on all ranks. Two kinds of values are always kept: the
// residual from which each block starts, and the outputs of ops that have an effect, because a loss
// must not be counted twice. Copies whose outputs nobody reads are removed (RemoveDead). The
// results have the same bits.
void Recompute(Program& program, const RecomputeOptions& options);

// Moves the instances of the first micro-batch to the start of their block in their list, so that a
// device gets the others as one graph. They depend on parameters and on each other alone.
void RoundAtOnce(Program& program);

struct LayoutOptions {
  // Bytes of the gradients that one collective sums. One storage may have more. A rank with few
  // gradients uses smaller buckets: a sixteenth of its gradients, but at least 1 MiB.
  size_t bucket_bytes = kBucketBytes;
  Zero zero = Zero::kNone;
  const Optimizer* optimizer = Optimizers().front();  // Declares the state of a training program.
  bool offload = false;                               // As in PlaceBuffers.
};
// Places the storages in the flat buffers, and divides them into buckets and the buckets into
// shards.
//
// Storages that may share a bucket lie together, in the order of chunks and blocks. Within a block
// the storages with weight decay come first, so that the optimizer has few ranges. Each storage
// starts at a multiple of kFlatAlignment. Buckets are filled from the end, in the order in which
// the backward pass completes them, and closed as soon as they have `bucket_bytes`.
//
// Under ZeRO FULL a bucket is windowed: it has storages of one block whose gradients are written by
// one list. A storage that several blocks or stages use is not windowed.
//
// Frozen storages come last, in the order of chunks and blocks. Under ZeRO FULL those of a block
// are divided over the ranks that hold the same values, and whole only in windows, unless several
// blocks or stages use them.
void LayOutParameters(Program& program, const LayoutOptions& options = {});
inline constexpr int64_t kFlatAlignment = 64;     // Elements.
inline constexpr int64_t kFrozenAlignment = 256;  // Bytes.

// A run of parameters that are updated in the same way. Padding belongs to the run before it.
struct UpdateRun {
  FlatRange flat;
  bool decay = false;
  bool matrices = false;  // As HasMatrices.
  std::optional<StateRule> state = {};
  int64_t elements = 0;  // Of the first storage, without padding.
  int64_t steps = 0;     // Of each history, if the run is one.
};
// Returns the runs of all trainable parameters, in the order of their places.
std::vector<UpdateRun> UpdateRuns(const Program& program, const Optimizer& optimizer);

// The last part of LayOutParameters: sets Program::places from the buckets.
//
// With `offload`, what only the optimizer needs lies in the memory of the device's host: moments,
// remainders, and the masters of which forward and backward read a copy. So every rounded parameter
// has a compute copy, also where the master has the same format. Unrounded masters stay on the
// device, because forward reads them. No collective uses a buffer of the host.
void PlaceBuffers(Program& program, const Optimizer& optimizer, bool offload);

// Records the lists init and prepare: initial parameters, zero state of the optimizer and compute
// copies of the parameters that this rank owns.
void RecordInitialization(Recorder& recorder);

// Records the list optimizer: waits for communication, computes norm and clip factor of the whole
// gradient, runs the optimizer on each range of equal decay, and gathers the compute copies that
// ZeRO's ranks have updated. The next forward waits for these copies before it reads them.
void RecordOptimizer(Recorder& recorder, const OptimizerOptions& options);

// Numbers of events: first those of the gradient windows, then one for each gathered bucket.
inline constexpr int kWindowEvents = 4;

// Inserts the sums of each bucket right after the last instance that writes its gradients. An
// instance that writes to a gradient window waits until the previous content has been summed.
void InsertBuckets(Program& program);

// Inserts a fetch before the first instance of each list that reads a block's weights in a window.
void InsertFetches(Program& program);

}  // namespace trainyard
