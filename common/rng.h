// Random numbers by position instead of order: a pure function of (seed, stream, index) that is the
// same on every rank, thread and device. Source: the finaliser of SplitMix64 (Steele, Lea & Flood
// 2014), applied to a hash of the three keys.

#pragma once

#include <cmath>
#include <cstdint>

#include "common/host_device.h"

namespace trainyard {

TRAINYARD_HOST_DEVICE constexpr uint64_t Mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

TRAINYARD_HOST_DEVICE constexpr uint64_t RandomBits(uint64_t seed, uint64_t stream,
                                                    uint64_t index) {
  return Mix(Mix(Mix(seed) ^ stream) ^ index);
}

// Uniform in (0, 1). It is never 0, so that its logarithm is finite.
TRAINYARD_HOST_DEVICE inline double Uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return (double(RandomBits(seed, stream, index) >> 12) + 0.5) * 0x1p-52;
}

// Standard normal, by Box and Muller 1958.
TRAINYARD_HOST_DEVICE inline double Normal(uint64_t seed, uint64_t stream, uint64_t index) {
  const double u = Uniform(seed, stream, 2 * index), v = Uniform(seed, stream, 2 * index + 1);
  return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
}

// The FNV-1a hash of a text. The stream of a parameter is the hash of its global name.
constexpr uint64_t HashName(const char* name) {
  uint64_t h = 0xcbf29ce484222325u;
  for (; *name != '\0'; ++name) h = (h ^ uint8_t(*name)) * 0x100000001b3u;
  return h;
}

}  // namespace trainyard
