// A master weight in f32 as a weight in bf16, which forward and backward read, and a remainder of
// 16 bits; and back. `bits` is the number that an f32 or a bf16 is in memory.
//
//   SplitMaster  weight = master, rounded to nearest, ties away from zero
//                remainder = bits(master) - 2^16 bits(weight)
//   JoinMaster   bits(master) = 2^16 bits(weight) + remainder
//
// JoinMaster gives back the master to the bit. Let u = bits(master). Then
//
//   bits(weight) = (u + 2^15) div 2^16         remainder = (u + 2^15) mod 2^16 - 2^15
//
// so the remainder lies in [-2^15, 2^15), and 2^16 bits(weight) + remainder = u. This needs u +
// 2^15 < 2^32 and that the sum does not reach the sign bit. Both hold unless the master is NaN: u
// without its sign is at most 0x7f800000, infinity. So -0 stays -0, subnormal numbers are as all
// others, and from 0x7f7f8000 on a finite master has an infinite weight, as rounding to nearest
// even has it, and joins to what it was. A NaN becomes the NaN 0x7fc0 with its sign, and remainder
// 0. Letters: n elements.

#pragma once

#include <bit>
#include <cstdint>

#include "common/host_device.h"
#include "kernels/device/expect.h"

namespace trainyard {

struct SplitMasterArgs {
  ConstTensor master;  // [n]  f32
  Tensor weight;       // [n]  out, bf16
  Tensor remainder;    // [n]  out, i16
};

struct JoinMasterArgs {
  ConstTensor weight;     // [n]  bf16
  ConstTensor remainder;  // [n]  i16
  Tensor master;          // [n]  out, f32
};

inline void Check(const SplitMasterArgs& args) {
  const int64_t n = args.master.elements();
  ExpectElements("split_master master", args.master, DType::kF32, n);
  ExpectElements("split_master weight", args.weight, DType::kBF16, n);
  ExpectElements("split_master remainder", args.remainder, DType::kI16, n);
}

inline void Check(const JoinMasterArgs& args) {
  const int64_t n = args.master.elements();
  ExpectElements("join_master weight", args.weight, DType::kBF16, n);
  ExpectElements("join_master remainder", args.remainder, DType::kI16, n);
  ExpectElements("join_master master", args.master, DType::kF32, n);
}

struct SplitWeight {
  uint16_t weight = 0;  // The bits of a bf16.
  int16_t remainder = 0;
};

TRAINYARD_HOST_DEVICE inline SplitWeight Split(float master) {
  const uint32_t u = std::bit_cast<uint32_t>(master);
  const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
  const uint32_t from = nan ? (u & 0x80000000u) | 0x7fc00000u : u;
  return {uint16_t((from + 0x8000u) >> 16), int16_t(uint16_t(from))};
}

TRAINYARD_HOST_DEVICE inline float Join(uint16_t weight, int16_t remainder) {
  return std::bit_cast<float>((uint32_t{weight} << 16) + uint32_t(int32_t{remainder}));
}

}  // namespace trainyard
