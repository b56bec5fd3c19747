// What changes from step to step, in one buffer in device memory that kernels read. Arguments of
// bound kernels never change, which is what lets a program be bound once and a CUDA graph be
// replayed.

#pragma once

#include <cstdint>

namespace trainyard {

// Of the 32-bit words of what AdamW updates, modulo 2^32: no matter in which order they are added.
// A single bit that changes in the words changes their sum.
struct WordSums {
  uint32_t master = 0;
  uint32_t m = 0;
  uint32_t v = 0;
  bool operator==(const WordSums&) const = default;
};

struct StepState {
  // Written by the host before the step.
  int64_t step = 0;  // From 1: the one being computed.
  double learning_rate = 0;
  double loss_scale = 0;  // 1 / counted tokens of the whole global batch.
  double clip_norm = 0;   // 0: no clipping.
  uint64_t seed = 0;

  // Written by kernels within the step, read by the host after it.
  double loss = 0;  // Sum over micro-batches of this rank; of all ranks after the reduction.
  double auxiliary_loss = 0;  // Likewise, of what is trained for besides: balanced experts.
  double grad_norm_squared = 0;
  double grad_norm = 0;
  double clip_factor = 1;  // What AdamW multiplies gradients by.
  int64_t finite = 1;      // 0: loss or gradient norm is not finite, and AdamW changes nothing.
  WordSums read = {};      // What AdamW found in memory, all of its calls together...
  WordSums written = {};   // ... and what it left there.
};

}  // namespace trainyard
