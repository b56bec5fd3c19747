// Bound by memory: four reads and three or four writes for each element.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/optimizer/adamw.h"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 256;

// The arguments for masters of type A and a compute copy of type T.
template <typename A, typename T>
struct Update {
  A* master;
  A* m;
  A* v;
  const A* grad;
  T* compute;  // May be null.
  int64_t count;
  AdamWOptions options;
  StepState* state;
};

// The sums of a thread: those of StepState::read, then those of StepState::written.
using Sums = uint32_t[6];

// Updates the elements [i, i + kCount).
template <int kCount, typename A, typename T>
__device__ void UpdatePack(const Update<A, T>& u, const AdamWCoefficients<A>& k, int64_t i,
                           Sums& sums) {
  const auto grads = LoadPack<A, kCount>(u.grad + i);
  auto masters = LoadPack<A, kCount>(u.master + i);
  auto ms = LoadPack<A, kCount>(u.m + i), vs = LoadPack<A, kCount>(u.v + i);
  Pack<T, kCount> computes;
  for (int n = 0; n < kCount; ++n) {
    const auto [master, m, v] = AdamWUpdate({masters.v[n], ms.v[n], vs.v[n]}, grads.v[n], k);
    sums[0] += WordSum(masters.v[n]);
    sums[1] += WordSum(ms.v[n]);
    sums[2] += WordSum(vs.v[n]);
    sums[3] += WordSum(master);
    sums[4] += WordSum(m);
    sums[5] += WordSum(v);
    ms.v[n] = m;
    vs.v[n] = v;
    masters.v[n] = master;
    computes.v[n] = T(Accumulate<T>(master));
  }
  StorePack(u.m + i, ms);
  StorePack(u.v + i, vs);
  StorePack(u.master + i, masters);
  if (u.compute != nullptr) StorePack(u.compute + i, computes);
}

template <int kCount, typename A, typename T>
__global__ void __launch_bounds__(kThreads) UpdateKernel(Update<A, T> u) {
  if (u.state->finite == 0) return;
  __shared__ AdamWCoefficients<A> coefficients;
  if (threadIdx.x == 0) {  // Powers take long.
    coefficients = CoefficientsOf<A>(u.options, *u.state);
  }
  __syncthreads();
  const AdamWCoefficients<A> k = coefficients;
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

template <typename A, typename T>
void LaunchUpdate(Exec& exec, const AdamWArgs& args) {
  T* compute = args.compute.data != nullptr ? args.compute.as<T>() : nullptr;
  const Update<A, T> u = {args.master.as<A>(), args.m.as<A>(), args.v.as<A>(),
                          args.grad.as<A>(),   compute,        args.master.elements(),
                          args.options,        args.state};
  const bool packed = CanPack<A>(0, u.master, u.m, u.v, u.grad, compute);
  const auto kernel = packed ? UpdateKernel<kPackOf<A>, A, T> : UpdateKernel<1, A, T>;
  const int64_t threads = packed ? CeilDiv(u.count, kPackOf<A>) : u.count;
  Launch(exec, {std::min(CeilDiv(threads, kThreads), kMaxBlocks), kThreads}, kernel, u);
}

}  // namespace

void AdamW(Exec& exec, const AdamWArgs& args) {
  const bool bf16_copy = args.compute.data != nullptr && args.compute.dtype == DType::kBF16;
  if (args.master.dtype == DType::kF64) {
    bf16_copy ? LaunchUpdate<double, bf16>(exec, args) : LaunchUpdate<double, double>(exec, args);
  } else {
    bf16_copy ? LaunchUpdate<float, bf16>(exec, args) : LaunchUpdate<float, float>(exec, args);
  }
}

}  // namespace trainyard::cuda
