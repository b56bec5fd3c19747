// Rounds two numbers to an 8-bit format (kernels/device/narrow.h) by one instruction.

#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/device/narrow.h"

namespace trainyard::cuda {

// What the instruction makes of one number: infinity becomes the largest number, as large numbers
// do, and NaN loses its sign.
template <typename Format, typename A>
__device__ inline uint8_t Saturated(A x) {
  constexpr A kLargest = Format::kLargest;
  return x != x ? Format::kNaN : RoundTo<Format>(std::clamp(x, -kLargest, kLargest));
}

// Replaces what the instruction makes of a number that is not finite.
template <typename Format, typename A>
__device__ inline uint32_t SpecialOr(A x, uint32_t rounded) {
  if (x - x == 0) return rounded;
  return (x == x ? Format::kInfinity : Format::kNaN) | (std::signbit(x) ? 0x80u : 0u);
}

// The bits of RoundTo<Format>(first), and above them those of RoundTo<Format>(second). kFinite:
// both are known to be finite.
template <typename Format, bool kFinite, typename A>
__device__ inline uint32_t RoundPair(A first, A second) {
  uint32_t both;
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<A, float>) {
    uint16_t rounded;
    if constexpr (std::is_same_v<Format, E4M3>) {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(rounded) : "f"(second), "f"(first));
    } else {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(rounded) : "f"(second), "f"(first));
    }
    both = rounded;
  } else
#endif
    both = Saturated<Format>(first) | uint32_t{Saturated<Format>(second)} << 8;
  if constexpr (kFinite) return both;
  return SpecialOr<Format>(first, both & 0xff) | SpecialOr<Format>(second, both >> 8) << 8;
}

}  // namespace trainyard::cuda
