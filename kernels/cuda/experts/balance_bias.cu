// Bound by the launches, because there are few experts.
#include "kernels/cuda/experts/expert_counts.h"
#include "kernels/cuda/kernels.h"
#include "kernels/experts/balance_bias.h"

namespace trainyard::cuda {
namespace {

template <typename A>
struct StoreDeviation {
  A* gradient;
  int64_t experts, slots;
  bool add;
  __device__ void operator()(int expert, int32_t count) const {
    const A deviation = A(experts * count - slots);
    gradient[expert] = add ? gradient[expert] + deviation : deviation;
  }
};

template <typename A>
struct Step {
  A* master;
  const A* gradient;
  A rate;
  const StepState* state;
  __device__ void operator()(int64_t i) const {
    if (state->finite == 0) return;
    A value = master[i];
    if (gradient[i] > 0) value -= rate;
    if (gradient[i] < 0) value += rate;
    master[i] = value;
  }
};

template <typename A>
void Update(Exec& exec, const BalanceBiasArgs& args) {
  const Step<A> step = {.master = args.master.as<A>(),
                        .gradient = args.gradient.as<A>(),
                        .rate = A(args.rate),
                        .state = args.state};
  ForEach(exec, args.master.elements(), step);
}

}  // namespace

void BalanceBiasGradient(Exec& exec, const BalanceBiasGradientArgs& args) {
  const int64_t slots = args.experts.elements(), experts = args.gradient.elements();
  const bool add = args.write == Write::kAdd;
  const TileCounts tiles = CountTiles(exec, args.experts, experts, CountedFor::kBalanceBias);
  if (args.gradient.dtype == DType::kF64) {
    ScanTiles(exec, tiles, StoreDeviation<double>{args.gradient.as<double>(), experts, slots, add});
  } else {
    ScanTiles(exec, tiles, StoreDeviation<float>{args.gradient.as<float>(), experts, slots, add});
  }
}

void BalanceBias(Exec& exec, const BalanceBiasArgs& args) {
  args.master.dtype == DType::kF64 ? Update<double>(exec, args) : Update<float>(exec, args);
}

}  // namespace trainyard::cuda
