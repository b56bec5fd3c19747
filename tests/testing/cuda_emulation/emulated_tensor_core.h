// The tensor cores' instructions (kernels/cuda/products/tensor_core.h), lane by lane.

#pragma once

#include <array>

#include "cuda_runtime.h"

namespace cuda_emulation {

// A pointer from each lane of a whole warp.
std::array<const void*, 32> FromAllLanes(const void* mine);

// How many products (MultiplyAdd) warps have begun in this process. By this number, tests see
// whether a kernel for tensor cores has run.
int64_t TensorProducts();
void CountTensorProduct();  // Each lane calls it; one counts.

inline uint16_t Half(uint32_t pair, int i) { return uint16_t(pair >> (16 * i)); }

inline float BFloat(uint16_t bits) {
  const uint32_t u = uint32_t{bits} << 16;
  float x;
  std::memcpy(&x, &u, sizeof(x));
  return x;
}

// Each instruction is one of the whole warp: no lane goes on before all have read.
inline void LoadMatrices(const void* row, bool transposed, uint32_t* result) {
  const std::array<const void*, 32> rows = FromAllLanes(row);
  const int g = Lane() / 4, t = Lane() % 4 * 2;
  for (int matrix = 0; matrix < 4; ++matrix) {
    uint16_t pair[2];
    for (int i = 0; i < 2; ++i) {
      const int from_row = transposed ? t + i : g, column = transposed ? g : t + i;
      pair[i] = static_cast<const uint16_t*>(rows[size_t(matrix * 8 + from_row)])[column];
    }
    result[matrix] = pair[0] | uint32_t{pair[1]} << 16;
  }
  __syncwarp();
}

inline void MultiplyAdd(const uint32_t* a, const uint32_t* b, float* sum) {
  CountTensorProduct();
  const std::array<const void*, 32> as = FromAllLanes(a), bs = FromAllLanes(b);
  const auto pair_of = [](const auto& lanes, int lane, int i) {
    return static_cast<const uint32_t*>(lanes[size_t(lane)])[i];
  };
  const int g = Lane() / 4, t = Lane() % 4 * 2;
  float left[2][16], right[16][2];  // This lane's rows g and g + 8, and columns t and t + 1.
  for (int quarter = 0; quarter < 4; ++quarter) {
    for (int i = 0; i < 4; ++i) {
      const uint32_t pair = pair_of(as, g * 4 + quarter, i);
      for (int n = 0; n < 2; ++n) left[i % 2][i / 2 * 8 + quarter * 2 + n] = BFloat(Half(pair, n));
    }
    for (int column = 0; column < 2; ++column) {
      for (int i = 0; i < 2; ++i) {
        const uint32_t pair = pair_of(bs, (t + column) * 4 + quarter, i);
        for (int n = 0; n < 2; ++n) right[i * 8 + quarter * 2 + n][column] = BFloat(Half(pair, n));
      }
    }
  }
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 16; ++k) sum[i] += left[i / 2][k] * right[k][i % 2];
  }
}

}  // namespace cuda_emulation
