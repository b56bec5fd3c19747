#include "kernels/embeddings/grid_positions.h"

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

void GridPositions(Exec& exec, const GridPositionsArgs& args) {
  const int64_t quarter = args.y.shape.back() / 4;
  DispatchFloat(args.y.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    T* y = args.y.as<T>();
    ParallelRows(exec, args.y.shape.rows(), 4 * quarter, [=, &args](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t p = args.part.position((args.first_row + t) % args.part.rows);
        T* row = y + t * 4 * quarter;
        for (const int64_t place : {p % args.columns, p / args.columns}) {
          for (int64_t i = 0; i < quarter; ++i) {
            const double angle = double(place) * std::pow(10000.0, -double(i) / double(quarter));
            row[i] = T(A(std::sin(angle)));
            row[quarter + i] = T(A(std::cos(angle)));
          }
          row += 2 * quarter;
        }
      }
    });
  });
}

}  // namespace trainyard::cpu
