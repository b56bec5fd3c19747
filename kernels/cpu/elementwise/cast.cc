#include "kernels/elementwise/cast.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
void Cast(Exec& exec, const CastArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto from) {
    DispatchFloat(args.y.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      const From* x = args.x.as<From>();
      To* y = args.y.as<To>();
      ParallelElements(exec, args.x.elements(), [=](int64_t begin, int64_t end) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) y[i] = To(Accumulate<From>(x[i]));
      });
    });
  });
}

}  // namespace trainyard::cpu
