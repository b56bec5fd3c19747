#include "kernels/embeddings/time_embedding.h"

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

void TimeEmbedding(Exec& exec, const TimeEmbeddingArgs& args) {
  const int64_t half = args.y.shape.back() / 2;
  const int32_t* time = args.time.as<int32_t>();
  DispatchFloat(args.y.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    T* y = args.y.as<T>();
    ParallelRows(exec, args.y.shape.rows(), 2 * half, [=](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        T* row = y + b * 2 * half;
        for (int64_t i = 0; i < half; ++i) {
          const double angle = time[b] * std::pow(10000.0, -double(i) / double(half - 1));
          row[i] = T(A(std::cos(angle)));
          row[half + i] = T(A(std::sin(angle)));
        }
      }
    });
  });
}

}  // namespace trainyard::cpu
