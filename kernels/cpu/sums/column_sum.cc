#include "kernels/sums/column_sum.h"

#include "kernels/cpu/columns.h"
#include "kernels/cpu/kernels.h"

namespace trainyard::cpu {

void ColumnSum(Exec& exec, const ColumnSumArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const int64_t n = args.x.shape.back();
    const T* x = args.x.as<T>();
    SumRows<1, A>(exec, args.x.shape, {args.y.as<A>()}, args.write,
                  [=](int64_t begin, int64_t end, std::array<A*, 1> sums) {
                    for (int64_t t = begin; t < end; ++t) {
                      const T* row = x + t * n;
#pragma omp simd
                      for (int64_t c = 0; c < n; ++c) sums[0][c] += A(row[c]);
                    }
                  });
  });
}

}  // namespace trainyard::cpu
