// The loss of rows of logits and its gradient in one kernel (kernels/loss/cross_entropy.h).

#pragma once

#include "kernels/cuda/loss/logits.h"
#include "kernels/device/exec.h"
#include "kernels/device/step_state.h"

namespace trainyard::cuda {

// L: the dtype of logits.
template <typename L>
struct Loss {
  const L* logits;
  Targets targets;  // The slice is the whole vocabulary.
  int64_t rows;
  const StepState* state;
  Accumulate<L>* statistics;  // Of rows that are not counted: (0, 1, 0).
  L* dlogits;                 // May be logits.
  int kept = 0;               // Set by LossAndGradient: columns of a row in shared memory.
};

// Enqueues it. L: float or bf16.
template <typename L>
void LossAndGradient(Exec& exec, Loss<L> args);

}  // namespace trainyard::cuda
