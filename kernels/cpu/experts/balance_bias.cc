#include "kernels/experts/balance_bias.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

template <typename A>
void Gradient(const BalanceBiasGradientArgs& args) {
  const int64_t slots = args.experts.elements(), experts = args.gradient.elements();
  const int32_t* expert = args.experts.as<int32_t>();
  A* gradient = args.gradient.as<A>();
  const bool add = args.write == Write::kAdd;
  for (int64_t e = 0; e < experts; ++e) gradient[e] = (add ? gradient[e] : A(0)) - A(slots);
  for (int64_t slot = 0; slot < slots; ++slot) {
    CHECK(expert[slot] >= 0 && expert[slot] < experts)
        << "balance_bias experts: expert " << expert[slot] << " at " << slot << " of " << experts;
    gradient[expert[slot]] += A(experts);
  }
}

template <typename A>
void Update(const Exec& exec, const BalanceBiasArgs& args) {
  A* master = args.master.as<A>();
  const A* gradient = args.gradient.as<A>();
  const A rate = A(args.rate);
  ParallelElements(exec, args.master.elements(), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (gradient[i] > 0) master[i] -= rate;
      if (gradient[i] < 0) master[i] += rate;
    }
  });
}

}  // namespace

void BalanceBiasGradient(Exec&, const BalanceBiasGradientArgs& args) {
  if (args.gradient.dtype == DType::kF64) {
    Gradient<double>(args);
  } else {
    Gradient<float>(args);
  }
}

void BalanceBias(Exec& exec, const BalanceBiasArgs& args) {
  if (args.state->finite == 0) return;
  args.master.dtype == DType::kF64 ? Update<double>(exec, args) : Update<float>(exec, args);
}

}  // namespace trainyard::cpu
