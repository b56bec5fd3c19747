// Sums and maxima over the threads of a warp or block, with the same bits every time, and running
// sums.

#pragma once

#include <cuda_runtime.h>

namespace trainyard::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

struct Sum {
  template <typename A>
  __device__ A operator()(A a, A b) const {
    return a + b;
  }
};
struct Max {
  template <typename A>
  __device__ A operator()(A a, A b) const {
    return a < b ? b : a;
  }
};

// Reduces over all lanes; each lane gets the result. All 32 lanes must call it.
template <typename A, typename Op>
__device__ A WarpReduce(A x, Op op) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    x = op(x, __shfl_xor_sync(kAllLanes, x, lanes));
  }
  return x;
}

// Reduces over all threads of a block; each thread gets the result. Blocks must be one-dimensional
// and consist of whole warps, and all threads must call it. May be called repeatedly.
template <typename A, typename Op>
__device__ A BlockReduce(A x, Op op, A identity) {
  __shared__ A of_warp[kWarp];
  const int warp = int(threadIdx.x) / kWarp, lane = int(threadIdx.x) % kWarp;
  const int warps = int(blockDim.x) / kWarp;
  x = WarpReduce(x, op);
  if (warps == 1) return x;
  if (lane == 0) of_warp[warp] = x;
  __syncthreads();
  x = WarpReduce(lane < warps ? of_warp[lane] : identity, op);
  __syncthreads();  // Before the next call writes there.
  return x;
}

// Several sums at once: x[i] becomes the sum of all threads' x[i].
template <typename A, int kCount>
__device__ void BlockSums(A (&x)[kCount]) {
  __shared__ A of_warp[kCount][kWarp];
  const int warp = int(threadIdx.x) / kWarp, lane = int(threadIdx.x) % kWarp;
  const int warps = int(blockDim.x) / kWarp;
  for (A& sum : x) sum = WarpReduce(sum, Sum());
  if (warps == 1) return;
  for (int i = 0; i < kCount; ++i) {
    if (lane == 0) of_warp[i][warp] = x[i];
  }
  __syncthreads();
  for (int i = 0; i < kCount; ++i) x[i] = WarpReduce(lane < warps ? of_warp[i][lane] : A(0), Sum());
  __syncthreads();  // Before the next call writes there.
}

template <typename A>
__device__ A BlockSum(A x) {
  return BlockReduce(x, Sum(), A(0));
}

// The sum over this lane and the lanes below it. All 32 lanes must call it.
template <typename A>
__device__ A WarpScan(A x) {
  for (int lanes = 1; lanes < kWarp; lanes *= 2) {
    const A below = __shfl_up_sync(kAllLanes, x, lanes);
    if (int(threadIdx.x) % kWarp >= lanes) x += below;
  }
  return x;
}

// The sum over this thread and the threads below it. `total` gets the sum over all. Blocks as in
// BlockReduce.
template <typename A>
__device__ A BlockScan(A x, A* total) {
  __shared__ A of_warp[kWarp];
  const int warp = int(threadIdx.x) / kWarp, lane = int(threadIdx.x) % kWarp;
  x = WarpScan(x);
  if (lane == kWarp - 1) of_warp[warp] = x;
  __syncthreads();
  *total = 0;
  for (int w = 0; w < int(blockDim.x) / kWarp; ++w) {
    if (w == warp) x += *total;
    *total += of_warp[w];
  }
  __syncthreads();  // Before the next call writes there.
  return x;
}

}  // namespace trainyard::cuda
