// Edits of a recorded program, in the order in which RecordTraining applies them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/parallel/zero.h"
#include "models/program/passes/options.h"
#include "models/program/recorder.h"

namespace trainyard {

// Replaces pairs of ops of a list by one op each that does the work of both, as the table in
// fuse.cc says: the residual's add and the norm of the sum, a product and GELU. Call this for the
// forward list before RecordBackward, because a fused op records its own backward, and for the
// backward list before Recompute, which puts copies of forward ops there.
//
// Only ops of one block are fused: stages send what goes from block to block, and recompute starts
// from it. A norm that were fused with the last add of the block before would start from one value
// more, and the program would differ where the model is cut. An activation that is to be computed
// again is not fused with its product: the fused op takes it of sums that were never rounded, and
// computing it again from the stored product would give other bits.
void Fuse(Program& program, List list, const RecomputeOptions& recompute = {});

// Drops, from what crosses the cuts of a model, what no later chunk needs for a loss, an effect or
// an output. Of the forward list, before RecordBackward.
void DropUnreadCrossings(Program& program);

// Walks the forward list in reverse and records the backward lists. Where a value is used more than
// once, its later gradients are added to the first. Ends where nothing trainable lies below: a
// value with frozen parameters alone upstream has no gradient.
void RecordBackward(Recorder& recorder);

// Removes instances whose outputs nobody reads and that have no effect of their own, and narrows
// others to what is read.
void RemoveDead(Program& program);

// Of a whole model cut into parts, keeps what this rank's pipeline stage runs. `stages` has the
// stage that holds each part. Marks the parameters that several stages share, and notes in the mesh
// which stages these are.
void KeepStage(Program& program, const std::vector<int>& stages);

// Has the backward lists read, of what `options` name, values computed again in place of those of
// the forward list, which then end there. An instance is computed again once, by a copy of itself
// in list kBackwardInput right before the first instance that needs it; collectives, too, at the
// same place on all ranks. Kept are the residual that each block starts from, and what an op with
// an effect made: losses are not counted twice. What nobody reads is not computed again
// (RemoveDead). Results are the same bits.
void Recompute(Program& program, const RecomputeOptions& options);

struct LayoutOptions {
  // Of gradients that one collective sums; a storage may exceed it. Less where a rank has few: a
  // sixteenth of them, down to 1 MiB.
  size_t bucket_bytes = kBucketBytes;
  Zero zero = Zero::kNone;
};
// Places the storages in the flat buffers, divides them into buckets, and those into shards. Chunk
// by chunk, block by block, within a block those with weight decay first, so that the optimizer's
// ranges are few. Each storage starts on a multiple of kFlatAlignment. Buckets are closed as soon
// as they have `bucket_bytes`, filled in the order in which the backward pass completes them: from
// the end.
// Under ZeRO FULL a bucket is windowed, of one block and one list, unless its storage is used by
// several blocks or stages.
// Frozen storages come after all others, chunk by chunk and block by block, in kFrozen alone: whole
// under any ZeRO.
void LayOutParameters(Program& program, const LayoutOptions& options = {});
inline constexpr int64_t kFlatAlignment = 64;     // Elements.
inline constexpr int64_t kFrozenAlignment = 256;  // Bytes.

// The last part of that: Program::places, from the buckets.
void PlaceBuffers(Program& program);

// Lists init and prepare: initial parameters, zero moments, compute copies, of what this rank owns.
void RecordInitialization(Recorder& recorder);

// List optimizer: wait, norm and clip factor of the whole gradient, AdamW per range of equal decay,
// and what the ranks of ZeRO updated gathered, which the next forward awaits where it reads it.
void RecordOptimizer(Recorder& recorder, const AdamWOptions& options);

// Numbers of events: of the gradient windows, then one for each bucket that is gathered.
inline constexpr int kWindowEvents = 4;

// Inserts the sums of each bucket right after the last writer of its gradients. Before a gradient
// window is written again, what was in it has been summed.
void InsertBuckets(Program& program);

// Inserts a fetch before the first instance of each list that reads a block's weights in a window.
void InsertFetches(Program& program);

}  // namespace trainyard
