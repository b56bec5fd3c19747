#include "kernels/optimizer/adamw.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/optimizer/update.h"

namespace trainyard::cpu {
namespace {

template <typename A>
struct Range {
  A* master;
  A* m;
  A* v;
  const A* grad;
  int64_t elements;
};

// All values that the loop reads are local, so that no store can change them. Only then does the
// compiler vectorise the loop with its sums.
template <typename A>
[[gnu::always_inline]] inline void UpdateRange(const Range<A> range, const AdamWCoefficients<A> k,
                                               WordSums& read, WordSums& written) {
  A* const __restrict master = range.master;
  A* const __restrict m_data = range.m;
  A* const __restrict v_data = range.v;
  const A* const __restrict grad = range.grad;
  uint32_t old_masters = 0, old_ms = 0, old_vs = 0, masters = 0, ms = 0, vs = 0;
#pragma omp simd reduction(+ : old_masters, old_ms, old_vs, masters, ms, vs)
  for (int64_t i = 0; i < range.elements; ++i) {
    const A old_master = master[i], old_m = m_data[i], old_v = v_data[i];
    const auto [updated, m, v] = AdamWUpdate({old_master, old_m, old_v}, grad[i], k);
    m_data[i] = m;
    v_data[i] = v;
    master[i] = updated;
    old_masters += WordSum(old_master), old_ms += WordSum(old_m), old_vs += WordSum(old_v);
    masters += WordSum(updated), ms += WordSum(m), vs += WordSum(v);
  }
  Add({old_masters, old_ms, old_vs}, read);
  Add({masters, ms, vs}, written);
}

template <typename A, typename T>
void Update(const Exec& exec, const AdamWArgs& args) {
  const auto update = [master = args.master.as<A>(), m = args.m.as<A>(), v = args.v.as<A>(),
                       grad = args.grad.as<A>(), k = CoefficientsOf<A>(args.options, *args.state)](
                          int64_t begin, int64_t end, WordSums& read, WordSums& written) {
    UpdateRange<A>({.master = master + begin,
                    .m = m + begin,
                    .v = v + begin,
                    .grad = grad + begin,
                    .elements = end - begin},
                   k, read, written);
  };
  UpdateMasters<A, T>(exec, args.master, args.compute, *args.state, update);
}

}  // namespace

void AdamW(Exec& exec, const AdamWArgs& args) {
  if (args.state->finite == 0) return;
  DispatchUpdate(args.master, args.compute,
                 [&]<typename A, typename T>() { Update<A, T>(exec, args); });
}

}  // namespace trainyard::cpu
