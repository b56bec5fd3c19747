// Rounds two numbers to an 8-bit format (kernels/device/narrow.h) by one instruction.

#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <type_traits>

#include "kernels/device/narrow.h"

namespace trainyard::cuda {

// The instruction saturates infinity as it does a large number, and its NaN has no sign. So numbers
// that are not finite get the bits that RoundTo gives them.
template <typename Format>
__device__ inline uint32_t SpecialOr(float x, uint32_t rounded) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), size = bits & 0x7fffffffu;
  if (size < 0x7f800000u) return rounded;
  return (bits >> 24 & 0x80) | (size == 0x7f800000u ? Format::kInfinity : Format::kNaN);
}

// The bits of RoundTo<Format>(first), and above them those of RoundTo<Format>(second).
template <typename Format, typename A>
__device__ uint16_t RoundPair(A first, A second) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<A, float>) {
    uint16_t both;
    if constexpr (std::is_same_v<Format, E4M3>) {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(second), "f"(first));
    } else {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(both) : "f"(second), "f"(first));
    }
    return uint16_t(SpecialOr<Format>(first, both & 0xffu) | SpecialOr<Format>(second, both >> 8)
                                                                 << 8);
  }
#endif
  return uint16_t(RoundTo<Format>(first) | RoundTo<Format>(second) << 8);
}

}  // namespace trainyard::cuda
