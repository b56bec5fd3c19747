#include "kernels/optimizer/lion.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/optimizer/update.h"

namespace trainyard::cpu {
namespace {

// The coefficients of one step, computed in f64 and stored in the dtype of the master weights.
template <typename A>
struct Coefficients {
  explicit Coefficients(const LionArgs& args)
      : beta1(A(args.beta1)),
        beta2(A(args.beta2)),
        fresh1(A(1 - args.beta1)),
        fresh2(A(1 - args.beta2)),
        clip(A(args.state->clip_factor)),
        keep(A(1 - args.state->learning_rate * args.weight_decay)),
        rate(A(args.state->learning_rate)) {}
  A beta1, beta2, fresh1, fresh2, clip;
  A keep;  // Factor of weight decay.
  A rate;
};

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
[[gnu::always_inline]] inline void UpdateRange(const Range<A> range, const Coefficients<A> k,
                                               WordSums& read, WordSums& written) {
  A* const __restrict master = range.master;
  A* const __restrict m_data = range.m;
  const A* const __restrict grad = range.grad;
  const A beta1 = k.beta1, beta2 = k.beta2, fresh1 = k.fresh1, fresh2 = k.fresh2;
  const A clip = k.clip, keep = k.keep, rate = k.rate;
  uint32_t old_masters = 0, old_ms = 0, masters = 0, ms = 0;
#pragma omp simd reduction(+ : old_masters, old_ms, masters, ms)
  for (int64_t i = 0; i < range.elements; ++i) {
    const A old_master = master[i], old_m = m_data[i];
    const A g = grad[i] * clip;
    const A c = beta1 * old_m + fresh1 * g;
    const A sign = A(c > 0) - A(c < 0);
    const A m = beta2 * old_m + fresh2 * g;
    const A updated = keep * old_master - rate * sign;
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
                       k = Coefficients<A>(args)](int64_t begin, int64_t end, WordSums& read,
                                                  WordSums& written) {
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
