#include "kernels/products/amax_history.h"

#include <algorithm>

#include "kernels/cpu/kernels.h"

namespace trainyard::cpu {
namespace {

template <typename A>
void Gradient(const AmaxHistoryGradientArgs& args) {
  const A* const amax = args.amax.as<A>();
  A* const gradient = args.gradient.as<A>();
  A greatest = args.write == Write::kAdd ? gradient[0] : A(0);
  for (int64_t i = 0; i < args.amax.elements(); ++i) greatest = std::max(greatest, amax[i]);
  std::fill_n(gradient, args.gradient.elements(), A(0));
  gradient[0] = greatest;
}

template <typename A>
void Update(const AmaxHistoryArgs& args) {
  A* const history = args.history.as<A>();
  A* const last = std::copy(history + 1, history + args.history.elements(), history);
  *last = args.gradient.as<A>()[0];
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
