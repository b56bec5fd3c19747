// cuDNN computes plain attention (IsPlain) of bf16, and sinks are added to its results. The rest is
// computed by our kernels: start at attention_forward.cu.

#include <mutex>

#include "common/log.h"
#include "kernels/attention/attention.h"
#include "kernels/cuda/attention/attention_core.h"
#include "kernels/cuda/attention/attention_sinks.h"
#include "kernels/cuda/attention/cudnn_attention.h"
#include "kernels/cuda/kernels.h"

namespace trainyard::cuda {
void LogOurs(DType dtype, const AttentionDims& dims) {
  static std::once_flag logged;
  if (dtype != DType::kBF16) return;
  std::call_once(logged, [&] {
    LogWarning("attention_without_cudnn",
               {{"head_dim", dims.head_dim}, {"sequence", dims.sequence}});
  });
}

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
