// Bound by memory: each element is read once.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/sums/sum_words.h"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 256;

// x consists of `head` elements before the first whole pack that is aligned, `packs` packs, and
// fewer than a pack's elements after them.
template <typename T>
struct Words {
  const T* x;
  int64_t count, head, packs;
  StepState* state;
};

template <typename T>
__global__ void __launch_bounds__(kThreads) SumWordsKernel(Words<T> words) {
  constexpr int kCount = kPackOf<T>;
  const T* const packs = words.x + words.head;
  const int64_t stride = int64_t(gridDim.x) * kThreads;
  const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t rest = words.head + words.packs * kCount + thread;
  uint32_t sum = 0;
#pragma unroll 4
  for (int64_t i = thread; i < words.packs; i += stride) {
    const auto xs = LoadPack<T, kCount>(packs + i * kCount);
    for (int n = 0; n < kCount; ++n) sum += WordSum(xs.v[n]);
  }
  if (thread < words.head) sum += WordSum(words.x[thread]);
  if (rest < words.count) sum += WordSum(words.x[rest]);
  sum = BlockSum(sum);
  if (threadIdx.x == 0) atomicAdd(&words.state->words, sum);
}

}  // namespace

void SumWords(Exec& exec, const SumWordsArgs& args) {
  DispatchSummed(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    constexpr int64_t kCount = kPackOf<T>;
    const T* x = args.x.as<T>();
    const int64_t count = args.x.elements();
    const int64_t beyond = int64_t(reinterpret_cast<uintptr_t>(x) % 16 / sizeof(T));
    const int64_t head = std::min(count, (kCount - beyond) % kCount);
    const int64_t packs = (count - head) / kCount;
    const int64_t blocks = std::min(CeilDiv(count, kThreads * kCount), kMaxBlocks);
    Launch(exec, {blocks, kThreads}, SumWordsKernel<T>,
           Words<T>{x, count, head, packs, args.state});
  });
}

}  // namespace trainyard::cuda
