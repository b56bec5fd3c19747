// Bound by memory: 12 bytes are read and 8 written for each element, in packs of eight elements.

#include <type_traits>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/optimizer/compact_adamw.h"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 256;

// The arguments for weights of type T: bf16, or float without remainders.
template <typename T>
struct Update {
  T* weight;
  int16_t* remainder;
  bf16* m;
  bf16* v;
  const float* grad;
  int64_t count;
  AdamWOptions options;
  uint64_t stream;
  BoxNumbers numbers;
  StepState* state;
};

// With the key of the random bits.
struct Coefficients {
  AdamWCoefficients<float> adamw;
  uint64_t key;
};

// The sums of a thread: those of StepState::read, then those of StepState::written.
using Sums = uint32_t[6];

// Updates the elements [i, i + kCount), which lie in one row.
template <int kCount, typename T>
__device__ void UpdatePack(const Update<T>& u, const Coefficients& k, int64_t i, Sums& sums) {
  constexpr bool kSplit = std::is_same_v<T, bf16>;
  const auto grads = LoadPack<float, kCount>(u.grad + i);
  auto weights = LoadPack<T, kCount>(u.weight + i);
  auto ms = LoadPack<bf16, kCount>(u.m + i), vs = LoadPack<bf16, kCount>(u.v + i);
  Pack<int16_t, kCount> remainders;
  if constexpr (kSplit) remainders = LoadPack<int16_t, kCount>(u.remainder + i);
  const uint64_t first = u.numbers.of(i);
  for (int n = 0; n < kCount; ++n) {
    float master;
    sums[0] += WordSum(weights.v[n]);
    sums[1] += WordSum(ms.v[n]);
    sums[2] += WordSum(vs.v[n]);
    if constexpr (kSplit) {
      sums[0] += WordSum(remainders.v[n]);
      master = Join(weights.v[n].bits, remainders.v[n]);
    } else {
      master = weights.v[n];
    }
    const auto now = CompactUpdate({master, ms.v[n], vs.v[n]}, grads.v[n], k.adamw);
    const auto random = uint32_t(Mix(k.key ^ (first + uint64_t(n))));
    ms.v[n].bits = RoundAtRandom(now.m, random);
    vs.v[n].bits = RoundAtRandom(now.v, random >> 16);
    if constexpr (kSplit) {
      const SplitWeight split = Split(now.master);
      weights.v[n].bits = split.weight;
      remainders.v[n] = split.remainder;
      sums[3] += WordSum(split.remainder);
    } else {
      weights.v[n] = now.master;
    }
    sums[3] += WordSum(weights.v[n]);
    sums[4] += WordSum(ms.v[n]);
    sums[5] += WordSum(vs.v[n]);
  }
  StorePack(u.m + i, ms);
  StorePack(u.v + i, vs);
  StorePack(u.weight + i, weights);
  if constexpr (kSplit) StorePack(u.remainder + i, remainders);
}

template <int kCount, typename T>
__global__ void __launch_bounds__(kThreads) CompactUpdateKernel(Update<T> u) {
  if (u.state->finite == 0) return;
  __shared__ Coefficients coefficients;
  if (threadIdx.x == 0) {  // Powers take long.
    coefficients = {CoefficientsOf<float>(u.options, *u.state), KeyOf(u.stream, *u.state)};
  }
  __syncthreads();
  const Coefficients k = coefficients;
  const int64_t stride = int64_t(gridDim.x) * kThreads, packs = u.count / kCount;
  const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t rest = packs * kCount + thread;  // The elements after the last pack, one by one.
  Sums sums = {};
  for (int64_t i = thread; i < packs; i += stride) UpdatePack<kCount>(u, k, i * kCount, sums);
  if (rest < u.count) UpdatePack<1>(u, k, rest, sums);
  BlockSums(sums);
  if (threadIdx.x != 0) return;
  uint32_t* const totals[] = {&u.state->read.master,    &u.state->read.m,    &u.state->read.v,
                              &u.state->written.master, &u.state->written.m, &u.state->written.v};
  for (int n = 0; n < 6; ++n) atomicAdd(totals[n], sums[n]);
}

template <typename T>
void LaunchUpdate(Exec& exec, const CompactAdamWArgs& args) {
  constexpr int kPack = kPackOf<bf16>;
  int16_t* const remainder =
      args.remainder.data != nullptr ? args.remainder.as<int16_t>() : nullptr;
  const Update<T> u = {.weight = args.weight.as<T>(),
                       .remainder = remainder,
                       .m = args.m.as<bf16>(),
                       .v = args.v.as<bf16>(),
                       .grad = args.grad.as<float>(),
                       .count = args.weight.elements(),
                       .options = args.options,
                       .stream = args.stream,
                       .numbers = BoxNumbers(args),
                       .state = args.state};
  const bool in_row = u.numbers.columns == u.count || u.numbers.columns % kPack == 0;
  const bool packed = in_row && CanPack<bf16>(0, u.weight, u.remainder, u.m, u.v, u.grad);
  const auto kernel = packed ? CompactUpdateKernel<kPack, T> : CompactUpdateKernel<1, T>;
  const int64_t threads = packed ? CeilDiv(u.count, kPack) : u.count;
  Launch(exec, {std::min(CeilDiv(threads, kThreads), kMaxBlocks), kThreads}, kernel, u);
}

}  // namespace

void CompactAdamW(Exec& exec, const CompactAdamWArgs& args) {
  args.remainder.data != nullptr ? LaunchUpdate<bf16>(exec, args) : LaunchUpdate<float>(exec, args);
}

}  // namespace trainyard::cuda
