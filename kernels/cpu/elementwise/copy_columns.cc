#include "kernels/elementwise/copy_columns.h"

#include <type_traits>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

void CopyColumns(Exec& exec, const CopyColumnsArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto x_scalar) {
    DispatchFloat(args.y.dtype, [&](auto y_scalar) {
      using From = decltype(x_scalar);
      using To = decltype(y_scalar);
      const int64_t x_row = args.x.shape.back(), y_row = args.y.shape.back(), n = args.columns;
      const From* x = args.x.as<From>() + args.x_begin;
      To* y = args.y.as<To>() + args.y_begin;
      ParallelRows(exec, args.x.shape.rows(), n, [=](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          const From* from = x + t * x_row;
          To* to = y + t * y_row;
          if constexpr (std::is_same_v<From, To>) {
            std::copy_n(from, n, to);
          } else {
#pragma omp simd
            for (int64_t c = 0; c < n; ++c) to[c] = To(Accumulate<From>(from[c]));
          }
        }
      });
    });
  });
}

}  // namespace trainyard::cpu
