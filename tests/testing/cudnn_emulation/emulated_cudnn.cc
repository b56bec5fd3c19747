#include "tests/testing/cudnn_emulation/emulated_cudnn.h"

#include <atomic>

#include "common/check.h"
#include "kernels/cuda/attention/cudnn_attention_call.h"
#include "kernels/cuda/launch.h"
#include "tests/testing/cudnn_emulation/graph_meaning.h"

namespace cudnn_emulation {
namespace {
std::atomic<int64_t>& Count() {
  static std::atomic<int64_t> count = 0;
  return count;
}
}  // namespace

int64_t Executed() { return Count(); }
void CountPlan() { ++Count(); }

}  // namespace cudnn_emulation

namespace trainyard::cuda {

bool ExecutePlan(Exec& exec, const CudnnAttentionPlan& wanted, const AttentionPointers& pointers) {
  cudnn_emulation::CountPlan();
  cuda_emulation::Enqueue(StreamOf(exec),
                          [wanted, pointers] { cudnn_emulation::ComputeGraph(wanted, pointers); });
  return true;
}

}  // namespace trainyard::cuda
