// The values that change from step to step, in one buffer in device memory that kernels read. The
// arguments of bound kernels never change, so a program is bound once, and a CUDA graph can be
// replayed.

#pragma once

#include <cstdint>

namespace trainyard {

// Sums of the 32-bit words of the tensors that the optimizer updates, modulo 2^32, so the order of
// adding does not matter. If a single bit changes in the words, their sum changes.
struct WordSums {
  uint32_t master = 0;
  uint32_t m = 0;
  uint32_t v = 0;
  bool operator==(const WordSums&) const = default;
};

struct StepState {
  // Written by the host before the step.
  int64_t step = 0;  // The step being computed, from 1.
  double learning_rate = 0;
  // What is counted are targets, or pairs of answers (kernels/loss/preference.h).
  double loss_scale = 0;     // 1 / what is counted in the whole global batch.
  double counted_share = 1;  // What is counted / tokens of the whole global batch.
  double answer_scale = 0;   // 1 / counted targets of the chosen answers of all pairs.
  double clip_norm = 0;      // 0: no clipping.
  uint64_t seed = 0;

  // Written by kernels within the step, read by the host after it.
  double loss = 0;  // Sum over this rank's micro-batches; of all ranks after the reduction.
  double auxiliary_loss = 0;  // The same for the loss of uneven experts.
  double grad_norm_squared = 0;
  double answer_loss = 0;  // These four: as `loss`, of pairs alone (kernels/loss/preference.h).
  double chosen_reward = 0;
  double rejected_reward = 0;
  double reward_accuracy = 0;
  double grad_norm = 0;
  double clip_factor = 1;  // The optimizer multiplies gradients by this.
  int64_t finite = 1;      // 0: loss or gradient norm is not finite, and no parameter changes.
  WordSums read = {};      // Found in memory by the optimizer, all of its calls together.
  WordSums written = {};   // Left in memory by the optimizer, all of its calls together.

  // Outside of a step: added to by SumWords (kernels/sums/sum_words.h).
  uint32_t words = 0;
};

}  // namespace trainyard
