// cuDNN's attention on the emulated device: its graphs are computed by what they say
// (graph_meaning.h).

#pragma once

#include <cstdint>

namespace cudnn_emulation {

// How many plans this process has executed.
int64_t Executed();
void CountPlan();

}  // namespace cudnn_emulation
