#include "kernels/elementwise/add_bias.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

void AddBias(Exec& exec, const AddBiasArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const int64_t n = args.x.shape.back();
    const T* x = args.x.as<T>();
    const T* bias = args.bias.as<T>();
    T* y = args.y.as<T>();
    ParallelRows(exec, args.x.shape.rows(), n, [=](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
#pragma omp simd
        for (int64_t c = 0; c < n; ++c) y[t * n + c] = T(A(x[t * n + c]) + A(bias[c]));
      }
    });
  });
}

}  // namespace trainyard::cpu
