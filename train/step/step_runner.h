// One optimizer step on one rank, and its validation pass: the executable driven, and timed by
// phase.

#pragma once

#include <cstdint>

#include "kernels/collective/collective.h"
#include "kernels/device/step_state.h"
#include "models/program/executable.h"
#include "train/step/prefetch.h"
#include "train/step/trainer.h"

namespace trainyard {

// What a step runs on.
struct StepInput {
  int64_t step = 0;
  double learning_rate = 0;
  double clip_norm = 0;
  int64_t tokens = 0;  // Counted ones of the whole global batch.
  uint64_t seed = 0;
};
StepState InitialState(const StepInput& input);

struct StepOutput {
  StepState state;      // Loss and gradient norm of the whole job.
  PhaseSeconds phases;  // This rank's.
};

// Gradients of all micro-batches, their reduction, and the update (which is not committed where
// state.finite comes out as 0).
StepOutput RunStep(Executable& executable, const StepState& state, const StepBatch& batch);

// Sum of losses over the batch, each scaled by 1 / tokens: this rank's part of the mean.
double RunForward(Executable& executable, const StepBatch& batch, int64_t tokens);

// What ranks tell each other after every step, in one all-reduce.
struct Agreement {
  bool finite = true;  // Everywhere.
  bool stop = false;   // Somewhere.
  double seconds = 0;  // Of the slowest rank.
};
Agreement Agree(Collective& collective, const Agreement& mine);

}  // namespace trainyard
