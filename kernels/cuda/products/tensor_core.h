// The tensor cores' product of small matrices of bf16, and the loads of its operands, in PTX or in
// the emulation's substitute. Whole warps must call these functions. Source: PTX ISA, sections
// mma.m16n8k16, ldmatrix and cp.async.

#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#ifdef TRAINYARD_CUDA_EMULATION
#include "emulated_tensor_core.h"
#endif

namespace trainyard::cuda {

struct Fragments {
  uint32_t v[4];  // Two neighbours each, the first in the lower half.
};

// Loads four 8x8 matrices from shared memory. Lane l passes the address of the 16 bytes of one row:
// row l % 8 of matrix l / 8. From each matrix, lane l gets two neighbours of row l / 4, in columns
// 2 (l % 4) and 2 (l % 4) + 1. If kTransposed, it gets them from the transpose.
template <bool kTransposed>
__device__ Fragments LoadMatrices(const void* row) {
  Fragments f;
#ifdef TRAINYARD_CUDA_EMULATION
  cuda_emulation::LoadMatrices(row, kTransposed, f.v);
#else
  const unsigned address = unsigned(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.v[0]), "=r"(f.v[1]), "=r"(f.v[2]), "=r"(f.v[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.v[0]), "=r"(f.v[1]), "=r"(f.v[2]), "=r"(f.v[3])
                 : "r"(address)
                 : "memory");
  }
#endif
  return f;
}

// sum [16, 8] += a [16, 16] b [16, 8]. With g = lane / 4 and t = 2 (lane % 4), the registers have
//   a: rows g, g + 8, g, g + 8; columns t and t + 1, in the last two registers t + 8 and t + 9
//   b: column g; rows t and t + 1, in the second register t + 8 and t + 9
//   sum: row g, columns t and t + 1; row g + 8, the same columns
__device__ inline void MultiplyAdd(const Fragments& a, const uint32_t* b, float* sum) {
#ifdef TRAINYARD_CUDA_EMULATION
  cuda_emulation::MultiplyAdd(a.v, b, sum);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a.v[0]), "r"(a.v[1]), "r"(a.v[2]), "r"(a.v[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// Starts a copy of 16 bytes to shared memory, or of zeroes if `copy` is false.
__device__ inline void StartCopy(void* to, const void* from, bool copy) {
#ifdef TRAINYARD_CUDA_EMULATION
  copy ? std::memcpy(to, from, 16) : std::memset(to, 0, 16);
#else
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(unsigned(__cvta_generic_to_shared(to))),
      "l"(from), "r"(copy ? 16 : 0)
      : "memory");
#endif
}

// Ends a group of this thread's copies.
__device__ inline void EndCopies() {
#ifndef TRAINYARD_CUDA_EMULATION
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until all but the last `kGroups` groups of this thread's copies are complete.
template <int kGroups>
__device__ void AwaitCopies() {
#ifndef TRAINYARD_CUDA_EMULATION
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
#endif
}

}  // namespace trainyard::cuda
