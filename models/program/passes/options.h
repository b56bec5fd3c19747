// What those who have a program recorded choose of its passes.

#pragma once

#include <cstdint>

namespace trainyard {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // Not of gains and biases.
};

// Which activations the backward pass computes again in place of having them kept (Chen et al.
// 2016, arXiv:1604.06174; Korthikanti et al. 2022, arXiv:2205.05198).
struct RecomputeOptions {
  int64_t blocks = 0;                  // All of the first so many layers of each stage.
  bool norms_and_activations = false;  // Of all blocks.
};

}  // namespace trainyard
