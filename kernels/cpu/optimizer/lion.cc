#include "kernels/optimizer/lion.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/optimizer/update.h"

namespace trainyard::cpu {
namespace {

template <typename A>
struct Range {
  A* master;
  A* m;
  const A* grad;
  int64_t elements;
};

// All values that the loop reads are local, so that no store can change them. Only then does the
// compiler vectorise the loop with its sums.
template <typename A>
[[gnu::always_inline]] inline void UpdateRange(const Range<A> range, const LionCoefficients<A> k,
                                               WordSums& read, WordSums& written) {
  A* const __restrict master = range.master;
  A* const __restrict m_data = range.m;
  const A* const __restrict grad = range.grad;
  uint32_t old_masters = 0, old_ms = 0, masters = 0, ms = 0;
#pragma omp simd reduction(+ : old_masters, old_ms, masters, ms)
  for (int64_t i = 0; i < range.elements; ++i) {
    const A old_master = master[i], old_m = m_data[i];
    const auto [updated, m] = LionUpdate({old_master, old_m}, grad[i], k);
    m_data[i] = m;
    master[i] = updated;
    old_masters += WordSum(old_master), old_ms += WordSum(old_m);
    masters += WordSum(updated), ms += WordSum(m);
  }
  Add({old_masters, old_ms, 0}, read);
  Add({masters, ms, 0}, written);
}

template <typename A, typename T>
void Update(const Exec& exec, const LionArgs& args) {
  const auto update = [master = args.master.as<A>(), m = args.m.as<A>(), grad = args.grad.as<A>(),
                       k = CoefficientsOf<A>(args.options, *args.state)](
                          int64_t begin, int64_t end, WordSums& read, WordSums& written) {
    UpdateRange<A>(
        {.master = master + begin, .m = m + begin, .grad = grad + begin, .elements = end - begin},
        k, read, written);
  };
  UpdateMasters<A, T>(exec, args.master, args.compute, *args.state, update);
}

}  // namespace

void Lion(Exec& exec, const LionArgs& args) {
  if (args.state->finite == 0) return;
  DispatchUpdate(args.master, args.compute,
                 [&]<typename A, typename T>() { Update<A, T>(exec, args); });
}

}  // namespace trainyard::cpu
