// What cuDNN's graphs of attention mean, computed on the host. The graphs are those that
// kernels/cuda/attention/cudnn_attention_graph.h describes to NVIDIA's frontend, read back from
// there: neither cuDNN nor a GPU is needed.

#pragma once

#include <cstdint>
#include <unordered_map>

#include "kernels/attention/cudnn_attention_plan.h"

namespace cudnn_emulation {

// Computes the graph of `plan` on tensors in memory that the host can access, by their uids. Sums
// are taken in f64, and rounded once to the dtype of each output. Ends the program if the graph
// says something that this computation does not know: a bias, dropout, a diagonal to the bottom
// right.
void ComputeGraph(const trainyard::CudnnAttentionPlan& plan,
                  const std::unordered_map<int64_t, void*>& tensors);

}  // namespace cudnn_emulation
