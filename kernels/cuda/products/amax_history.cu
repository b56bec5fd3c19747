// Bound by the launches, because a history is short.
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/products/amax_history.h"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 256;

// A block has a group.
template <typename A>
__global__ void __launch_bounds__(kThreads)
    GradientKernel(const A* amax, int64_t count, A* gradient, int64_t steps, bool add) {
  amax += blockIdx.x * count;
  gradient += blockIdx.x * steps;
  A most = add ? gradient[0] : A(0);
  for (int64_t i = threadIdx.x; i < count; i += kThreads) most = Max()(most, amax[i]);
  most = BlockReduce(most, Max(), A(0));
  for (int64_t i = threadIdx.x; i < steps; i += kThreads) gradient[i] = i == 0 ? most : A(0);
}

// A block has a group. All threads read their next element before any writes.
template <typename A>
__global__ void __launch_bounds__(kThreads)
    HistoryKernel(A* history, int64_t steps, const A* gradient, const StepState* state) {
  if (state->finite == 0) return;
  history += blockIdx.x * steps;
  gradient += blockIdx.x * steps;
  for (int64_t begin = 0; begin < steps; begin += kThreads) {
    const int64_t i = begin + threadIdx.x;
    const A next = i + 1 < steps ? history[i + 1] : gradient[0];
    __syncthreads();
    if (i < steps) history[i] = next;
    __syncthreads();
  }
}

template <typename A>
void Gradient(Exec& exec, const AmaxHistoryGradientArgs& args) {
  const int64_t groups = args.gradient.shape.rows();
  Launch(exec, {groups, kThreads}, GradientKernel<A>, args.amax.as<A>(),
         args.amax.elements() / groups, args.gradient.as<A>(), args.gradient.shape.back(),
         args.write == Write::kAdd);
}

template <typename A>
void Update(Exec& exec, const AmaxHistoryArgs& args) {
  Launch(exec, {args.history.shape.rows(), kThreads}, HistoryKernel<A>, args.history.as<A>(),
         args.history.shape.back(), args.gradient.as<A>(), args.state);
}

}  // namespace

void AmaxHistoryGradient(Exec& exec, const AmaxHistoryGradientArgs& args) {
  args.amax.dtype == DType::kF64 ? Gradient<double>(exec, args) : Gradient<float>(exec, args);
}

void AmaxHistory(Exec& exec, const AmaxHistoryArgs& args) {
  args.history.dtype == DType::kF64 ? Update<double>(exec, args) : Update<float>(exec, args);
}

}  // namespace trainyard::cuda
