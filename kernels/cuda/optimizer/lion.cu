// Bound by memory: three reads and two or three writes for each element.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/optimizer/lion.h"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 256;

// The arguments for masters of type A and a compute copy of type T.
template <typename A, typename T>
struct Range {
  A* master;
  A* m;
  const A* grad;
  T* compute;  // May be null.
  int64_t count;
  LionOptions options;
  StepState* state;
};

// The sums of a thread: those of StepState::read, then those of StepState::written.
using LionSums = uint32_t[4];

// Updates the elements [i, i + kCount).
template <int kCount, typename A, typename T>
__device__ void LionPack(const Range<A, T>& u, const LionCoefficients<A>& k, int64_t i,
                         LionSums& sums) {
  const auto grads = LoadPack<A, kCount>(u.grad + i);
  auto masters = LoadPack<A, kCount>(u.master + i);
  auto ms = LoadPack<A, kCount>(u.m + i);
  Pack<T, kCount> computes;
  for (int n = 0; n < kCount; ++n) {
    const auto [master, m] = LionUpdate({masters.v[n], ms.v[n]}, grads.v[n], k);
    sums[0] += WordSum(masters.v[n]);
    sums[1] += WordSum(ms.v[n]);
    sums[2] += WordSum(master);
    sums[3] += WordSum(m);
    ms.v[n] = m;
    masters.v[n] = master;
    computes.v[n] = T(Accumulate<T>(master));
  }
  StorePack(u.m + i, ms);
  StorePack(u.master + i, masters);
  if (u.compute != nullptr) StorePack(u.compute + i, computes);
}

template <int kCount, typename A, typename T>
__global__ void __launch_bounds__(kThreads) LionKernel(Range<A, T> u) {
  if (u.state->finite == 0) return;
  const LionCoefficients<A> k = CoefficientsOf<A>(u.options, *u.state);
  const int64_t stride = int64_t(gridDim.x) * kThreads, packs = u.count / kCount;
  const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t rest = packs * kCount + thread;  // The elements after the last pack, one by one.
  LionSums sums = {};
  for (int64_t i = thread; i < packs; i += stride) LionPack<kCount>(u, k, i * kCount, sums);
  if (rest < u.count) LionPack<1>(u, k, rest, sums);
  BlockSums(sums);
  if (threadIdx.x != 0) return;
  uint32_t* const totals[] = {&u.state->read.master, &u.state->read.m, &u.state->written.master,
                              &u.state->written.m};
  for (int n = 0; n < 4; ++n) atomicAdd(totals[n], sums[n]);
}

template <typename A, typename T>
void LaunchLion(Exec& exec, const LionArgs& args) {
  T* compute = args.compute.data != nullptr ? args.compute.as<T>() : nullptr;
  const Range<A, T> u = {args.master.as<A>(),    args.m.as<A>(), args.grad.as<A>(), compute,
                         args.master.elements(), args.options,   args.state};
  const bool packed = CanPack<A>(0, u.master, u.m, u.grad, compute);
  const auto kernel = packed ? LionKernel<kPackOf<A>, A, T> : LionKernel<1, A, T>;
  const int64_t threads = packed ? CeilDiv(u.count, kPackOf<A>) : u.count;
  Launch(exec, {std::min(CeilDiv(threads, kThreads), kMaxBlocks), kThreads}, kernel, u);
}

}  // namespace

void Lion(Exec& exec, const LionArgs& args) {
  const bool bf16_copy = args.compute.data != nullptr && args.compute.dtype == DType::kBF16;
  if (args.master.dtype == DType::kF64) {
    bf16_copy ? LaunchLion<double, bf16>(exec, args) : LaunchLion<double, double>(exec, args);
  } else {
    bf16_copy ? LaunchLion<float, bf16>(exec, args) : LaunchLion<float, float>(exec, args);
  }
}

}  // namespace trainyard::cuda
