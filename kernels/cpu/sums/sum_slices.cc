#include "kernels/sums/sum_slices.h"

#include <algorithm>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

void SumSlices(Exec& exec, const SumSlicesArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const int64_t elements = args.y.elements(), slices = args.x.elements() / elements;
    const T* x = args.x.as<T>();
    T* y = args.y.as<T>();
    ParallelElements(exec, elements, [=](int64_t begin, int64_t end) {
      constexpr int64_t kBlock = 512;
      A sum[kBlock];
      for (int64_t from = begin; from < end; from += kBlock) {
        const int64_t n = std::min(kBlock, end - from);
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) sum[i] = A(x[from + i]);
        for (int64_t k = 1; k < slices; ++k) {
          const T* slice = x + k * elements + from;
#pragma omp simd
          for (int64_t i = 0; i < n; ++i) sum[i] += A(slice[i]);
        }
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) y[from + i] = T(sum[i]);
      }
    });
  });
}

}  // namespace trainyard::cpu
