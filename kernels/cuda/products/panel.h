// The operands of a tile's product (plain_product.h, tensor_product.h).

#pragma once

#include "kernels/cuda/launch.h"

namespace trainyard::cuda {

// kDeep: neighbours in memory are neighbours in the reduction. kAlong: they are neighbours in the
// output.
enum class Order { kDeep, kAlong };

// The lines of a matrix that correspond to rows or columns of the output. A tile uses the first
// lines if there are more.
template <typename T, Order kOrderOf>
struct Panel {
  static constexpr Order kOrder = kOrderOf;

  const T* data;
  int64_t stride;  // Distance between elements that are not neighbours.
  int64_t lines;

  __device__ const T* At(int64_t line, int64_t depth) const {
    return data + (kOrder == Order::kDeep ? line * stride + depth : depth * stride + line);
  }
  __device__ Accumulate<T> Value(int64_t line, int64_t depth) const {
    return Accumulate<T>(*At(line, depth));
  }
};

}  // namespace trainyard::cuda
