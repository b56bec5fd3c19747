#include "kernels/adamw.h"

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

// Coefficients of one step, computed in f64 and then kept in the dtype of the master weights.
template <typename A>
struct Coefficients {
  explicit Coefficients(const AdamWArgs& args)
      : beta1(A(args.beta1)),
        beta2(A(args.beta2)),
        fresh1(A(1 - args.beta1)),
        fresh2(A(1 - args.beta2)),
        eps(A(args.eps)),
        clip(A(args.state->clip_factor)),
        keep(A(1 - args.state->learning_rate * args.weight_decay)),
        rate(A(args.state->learning_rate / (1 - std::pow(args.beta1, double(args.state->step))))),
        root(A(1 / std::sqrt(1 - std::pow(args.beta2, double(args.state->step))))) {}
  A beta1, beta2, fresh1, fresh2, eps, clip;
  A keep;  // What weight decay leaves.
  A rate;  // Learning rate over the bias correction of m.
  A root;  // 1 / root of the bias correction of v.
};

template <typename A, typename T>
void Update(const Exec& exec, const AdamWArgs& args) {
  const Coefficients<A> k(args);
  A* master = args.master.as<A>();
  A* m_data = args.m.as<A>();
  A* v_data = args.v.as<A>();
  const A* grad = args.grad.as<A>();
  T* compute = args.compute.data != nullptr ? args.compute.as<T>() : nullptr;
  const auto update = [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const A g = grad[i] * k.clip;
      const A m = k.beta1 * m_data[i] + k.fresh1 * g;
      const A v = k.beta2 * v_data[i] + k.fresh2 * g * g;
      m_data[i] = m;
      v_data[i] = v;
      master[i] = k.keep * master[i] - k.rate * m / (std::sqrt(v) * k.root + k.eps);
    }
    if (compute == nullptr) return;
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) compute[i] = T(Accumulate<T>(master[i]));
  };
  constexpr int64_t kChunk = 4096;  // Small enough that the copy finds the weights in the cache.
  ParallelElements(exec, args.master.elements(), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kChunk) update(i, std::min(end, i + kChunk));
  });
}

}  // namespace

void AdamW(Exec& exec, const AdamWArgs& args) {
  if (args.state->finite == 0) return;
  const bool bf16_copy = args.compute.data != nullptr && args.compute.dtype == DType::kBF16;
  if (args.master.dtype == DType::kF64) {
    bf16_copy ? Update<double, bf16>(exec, args) : Update<double, double>(exec, args);
  } else {
    bf16_copy ? Update<float, bf16>(exec, args) : Update<float, float>(exec, args);
  }
}

}  // namespace trainyard::cpu
