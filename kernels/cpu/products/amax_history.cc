#include "kernels/products/amax_history.h"

#include <algorithm>

#include "kernels/cpu/kernels.h"

namespace trainyard::cpu {
namespace {

template <typename A>
void Gradient(const AmaxHistoryGradientArgs& args) {
  const int64_t groups = args.gradient.shape.rows(), steps = args.gradient.shape.back();
  const int64_t values = args.amax.elements() / groups;
  for (int64_t g = 0; g < groups; ++g) {
    const A* const amax = args.amax.as<A>() + g * values;
    A* const gradient = args.gradient.as<A>() + g * steps;
    A greatest = args.write == Write::kAdd ? gradient[0] : A(0);
    for (int64_t i = 0; i < values; ++i) greatest = std::max(greatest, amax[i]);
    std::fill_n(gradient, steps, A(0));
    gradient[0] = greatest;
  }
}

template <typename A>
void Update(const AmaxHistoryArgs& args) {
  const int64_t steps = args.history.shape.back();
  for (int64_t g = 0; g < args.history.shape.rows(); ++g) {
    A* const history = args.history.as<A>() + g * steps;
    A* const last = std::copy(history + 1, history + steps, history);
    *last = args.gradient.as<A>()[g * steps];
  }
}

}  // namespace

void AmaxHistoryGradient(Exec&, const AmaxHistoryGradientArgs& args) {
  args.amax.dtype == DType::kF64 ? Gradient<double>(args) : Gradient<float>(args);
}

void AmaxHistory(Exec&, const AmaxHistoryArgs& args) {
  if (args.state->finite == 0) return;
  args.history.dtype == DType::kF64 ? Update<double>(args) : Update<float>(args);
}

}  // namespace trainyard::cpu
