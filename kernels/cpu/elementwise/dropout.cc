#include "kernels/elementwise/dropout.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

void Dropout(Exec& exec, const DropoutArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const int64_t columns = args.x.shape.back(), sequence = args.part.rows * args.part.ranks;
    const int64_t all_columns = args.columns > 0 ? args.columns : columns;
    const DropoutKey dropout(args.place, *args.state);
    const A scale = A(dropout.scale);
    const auto place = [&](int64_t t) {
      const int64_t row = args.first_row + t;
      return args.samples.as<int32_t>()[row] * sequence + args.part.position(row % args.part.rows);
    };
    ParallelRows(exec, args.x.shape.rows(), columns, [=, &args](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const T* x = args.x.as<T>() + t * columns;
        T* y = args.y.as<T>() + t * columns;
        const uint64_t first = uint64_t(place(t) * all_columns + args.first_column);
#pragma omp simd
        for (int64_t d = 0; d < columns; ++d) {
          y[d] = dropout.keeps(first + uint64_t(d)) ? T(A(x[d]) * scale) : T(A(0));
        }
      }
    });
  });
}

}  // namespace trainyard::cpu
