// Options of the passes that the caller of a recording chooses.

#pragma once

#include <cstdint>

namespace trainyard {

// The activations that the backward pass computes again, so that they need not be kept (Chen et al.
// 2016, arXiv:1604.06174; Korthikanti et al. 2022, arXiv:2205.05198).
struct RecomputeOptions {
  int64_t blocks = 0;                  // All activations of this many first layers per stage.
  bool norms_and_activations = false;  // In all blocks.
};

}  // namespace trainyard
