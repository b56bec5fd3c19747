// Bound by memory: each element is read once. Which elements a thread adds, and in which order,
// depends only on the number of elements.

#include "kernels/cuda/context.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/sums/sum_squares.h"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 256;

// Loads the pack at `x`, which need not be aligned for one access.
template <typename T, bool kAligned>
__device__ Pack<T, kPackOf<T>> LoadAny(const T* x) {
  if constexpr (kAligned) {
    return LoadPack<T, kPackOf<T>>(x);
  } else {
    Pack<T, kPackOf<T>> pack;
    for (int n = 0; n < kPackOf<T>; ++n) pack.v[n] = x[n];
    return pack;
  }
}

template <typename T>
__device__ double Square(T x) {
  return double(Accumulate<T>(x)) * double(Accumulate<T>(x));
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    SumSquaresKernel(const T* x, int64_t count, double* of_block) {
  constexpr int kCount = kPackOf<T>;
  const int64_t stride = int64_t(gridDim.x) * kThreads, packs = count / kCount;
  const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t rest = packs * kCount + thread;  // The elements after the last pack, one by one.
  double sums[kCount] = {};
#pragma unroll 4
  for (int64_t i = thread; i < packs; i += stride) {
    const auto xs = LoadAny<T, kAligned>(x + i * kCount);
    for (int n = 0; n < kCount; ++n) sums[n] += Square(xs.v[n]);
  }
  double sum = rest < count ? Square(x[rest]) : 0;
  for (int n = 0; n < kCount; ++n) sum += sums[n];
  sum = BlockSum(sum);
  if (threadIdx.x == 0) of_block[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    AddBlocksKernel(const double* of_block, int blocks, StepState* state) {
  double sum = 0;
  for (int i = int(threadIdx.x); i < blocks; i += kThreads) sum += of_block[i];
  sum = BlockSum(sum);
  if (threadIdx.x == 0) state->grad_norm_squared += sum;
}

}  // namespace

void SumSquares(Exec& exec, const SumSquaresArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const T* x = args.x.as<T>();
    const int64_t count = args.x.elements();
    const int64_t blocks = std::min(CeilDiv(count, kThreads * kPackOf<T>), kMaxBlocks);
    double* of_block = ScratchOf<double>(exec, blocks);
    const auto kernel = CanPack<T>(0, x) ? SumSquaresKernel<T, true> : SumSquaresKernel<T, false>;
    Launch(exec, {blocks, kThreads}, kernel, x, count, of_block);
    Launch(exec, {1, kThreads}, AddBlocksKernel, of_block, int(blocks), args.state);
  });
}

}  // namespace trainyard::cuda
