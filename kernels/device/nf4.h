// NF4: numbers in 4 bits, in blocks that share a scale, and scales in 8 bits.
//
// A tensor is a row of blocks of 64 numbers, in the order of its elements. A number is one of 16
// values of [-1, 1], which cut the normal distribution into parts of equal probability, times its
// block's scale. The scale is the block's greatest absolute value, rounded: 256 blocks are a group,
//
//   number = value[code] * scale
//   scale  = map[byte] * group + mean
//
// where `mean` is the mean of the tensor's scales, `group` the greatest absolute difference of the
// group's scales from it, and `map` has 256 numbers of [-1, 1], more of them near 0. A number takes
// 4 + 8 / 64 + 32 / (64 * 256) = 4.127 bits.
//
// All arithmetic is f32, each operation rounded to nearest. A number is then rounded to the dtype
// in which it is used. Sources: Dettmers et al. 2023, arXiv:2305.14314, section 3 and appendix E;
// the map: Dettmers et al. 2022, arXiv:2110.02861, section 2.1; bitsandbytes 0.50 for rounding.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/host_device.h"

namespace trainyard {

inline constexpr int64_t kNf4Block = 64;   // Numbers with one scale.
inline constexpr int64_t kNf4Group = 256;  // Blocks with one group.
inline constexpr int64_t kNf4PerByte = 2;  // Codes; the first one in the upper half.

// In ascending order.
inline constexpr std::array<float, 16> kNf4Values = {
    -1.0f,          -0.6961928010f, -0.5250730515f, -0.3949174881f,
    -0.2844413817f, -0.1847734302f, -0.0910500363f, 0.0f,
    0.0795802996f,  0.1609302014f,  0.2461123019f,  0.3379152417f,
    0.4407098293f,  0.5626170039f,  0.7229568362f,  1.0f};

// The map of scales, in ascending order: 0, 1, and for each power of ten from 1e-6 to 1 twice as
// many numbers of each sign as for the one before, the middles of equal parts of [0.1, 1] times the
// power. The ends of the parts are a multiple of a step in f32, counted from the nearer end and
// rounded once, as PyTorch's vector units have them.
constexpr std::array<float, 256> Nf4Map() {
  constexpr float kPowers[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
  constexpr size_t kZero = 127;
  std::array<float, 256> map = {};
  size_t at = kZero;
  for (int i = 0; i < 7; ++i) {
    const int parts = 1 << i;
    const float first = 0.1f, last = 1, step = (last - first) / float(parts);
    const auto end = [&](int k) {
      return k < (parts + 1) / 2 ? float(double(first) + double(step) * k)
                                 : float(double(last) - double(step) * (parts - k));
    };
    for (int k = 0; k < parts; ++k) {
      const float middle = kPowers[i] * ((end(k) + end(k + 1)) / 2);
      ++at;
      map[at] = middle;
      map[2 * kZero - at] = -middle;
    }
  }
  map[255] = 1;
  return map;
}

// The places between neighbours of `values`. A number at such a place belongs to the lower one.
template <size_t n>
constexpr std::array<float, n - 1> Nf4Middles(const std::array<float, n>& values) {
  std::array<float, n - 1> middles = {};
  for (size_t i = 0; i + 1 < n; ++i) middles[i] = (values[i] + values[i + 1]) / 2;
  return middles;
}

// Returns mapped * group + mean, rounded twice: never as one fused operation.
TRAINYARD_HOST_DEVICE inline float Nf4Scale(float mapped, float group, float mean) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(__fmul_rn(mapped, group), mean);
#else
  float product = mapped * group;
  asm("" : "+x"(product));  // The compiler must not fuse what it cannot see through.
  return product + mean;
#endif
}

}  // namespace trainyard
