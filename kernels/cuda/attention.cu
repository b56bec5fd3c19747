// cuDNN computes plain attention (IsPlain) of bf16, and sinks are added to its results. The rest is
// ours: attention_forward.cu and attention_backward.cu.

#include <mutex>

#include "common/log.h"
#include "kernels/attention.h"
#include "kernels/cuda/attention_core.h"
#include "kernels/cuda/attention_sinks.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/kernels.h"

namespace trainyard::cuda {
namespace {

// Once: a run must not be slow without a word. Runs whose speed is reported are refused where they
// log this (scripts/gpu_check/readers.py).
void LogOurs(DType dtype, const AttentionDims& dims) {
  static std::once_flag logged;
  if (dtype != DType::kBF16) return;
  std::call_once(logged, [&] {
    LogWarning("attention_without_cudnn",
               {{"head_dim", dims.head_dim}, {"sequence", dims.sequence}});
  });
}

}  // namespace

void AttentionForward(Exec& exec, const AttentionForwardArgs& args) {
  if (const auto packed = PackedOf(args); packed && CudnnAttention(exec, *packed)) {
    if (args.sinks.data != nullptr) AddSinks(exec, CoreOf<bf16>(args));
    return;
  }
  LogOurs(args.q.dtype, args.dims);
  DispatchFloat(args.q.dtype, [&](auto scalar) { Run(exec, CoreOf<decltype(scalar)>(args)); });
}

void AttentionBackward(Exec& exec, const AttentionBackwardArgs& args) {
  if (const auto packed = PackedOf(args); packed && CudnnAttention(exec, *packed)) {
    if (args.sinks.data != nullptr) SinkGradient(exec, CoreOf<bf16>(args));
    return;
  }
  LogOurs(args.q.dtype, args.dims);
  DispatchFloat(args.q.dtype, [&](auto scalar) { Run(exec, CoreOf<decltype(scalar)>(args)); });
}

}  // namespace trainyard::cuda
