// The CUDA core of attention.h and attention_part.h. Start at attention_tile.h.

#pragma once

#include <cstdint>

#include "kernels/attention/attention_core.h"
#include "kernels/device/exec.h"

namespace trainyard::cuda {

// Instantiated for O = T and O = Accumulate<T>.
template <typename T, typename O>
void Run(Exec& exec, const AttentionForwardCore<T, O>& core);
template <typename T, typename O>
void Run(Exec& exec, const AttentionBackwardCore<T, O>& core);

// Whether rows of heads can be read and written in chunks of eight elements.
template <typename T>
bool InChunks(const Heads<T>& heads) {
  return reinterpret_cast<uintptr_t>(heads.data) % 16 == 0 && heads.row % 8 == 0;
}
inline bool InChunks(const AttentionDims& dims) {
  return dims.head_dim % 8 == 0 && dims.value_dim % 8 == 0;
}

// Whether our kernels for the tensor cores take the core (attention_warp.h).
template <typename O>
bool TensorCoresTake(const AttentionForwardCore<bf16, O>& core) {
  return InChunks(core.dims) && InChunks(core.q) && InChunks(core.k) && InChunks(core.v) &&
         InChunks(core.out);
}
template <typename O>
bool TensorCoresTake(const AttentionBackwardCore<bf16, O>& core) {
  return InChunks(core.dims) && InChunks(core.q) && InChunks(core.k) && InChunks(core.v) &&
         InChunks(core.out) && InChunks(core.dout) && InChunks(core.dq) && InChunks(core.dk) &&
         InChunks(core.dv);
}

// Logs once that these slower kernels run for bf16. Speed reports refuse runs that log this
// (scripts/gpu_check/readers.py).
void LogOurs(DType dtype, const AttentionDims& dims);

}  // namespace trainyard::cuda
