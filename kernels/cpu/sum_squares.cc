#include "kernels/sum_squares.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

// The chunks depend on the length alone, so the sum does not depend on the threads.
void SumSquares(Exec& exec, const SumSquaresArgs& args) {
  constexpr int64_t kMaxChunks = 512, kMinChunk = 4096;
  const int64_t n = args.x.elements();
  const int64_t chunk = std::max(kMinChunk, (n + kMaxChunks - 1) / kMaxChunks);
  const int64_t chunks = (n + chunk - 1) / chunk;
  double sums[kMaxChunks];
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const T* x = args.x.as<T>();
    ParallelRows(exec, chunks, chunk, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        double sum = 0;
        const int64_t last = std::min(n, (c + 1) * chunk);
#pragma omp simd reduction(+ : sum)
        for (int64_t i = c * chunk; i < last; ++i) {
          const double value = Accumulate<T>(x[i]);
          sum += value * value;
        }
        sums[c] = sum;
      }
    });
  });
  double total = 0;
  for (int64_t c = 0; c < chunks; ++c) total += sums[c];
  args.state->grad_norm_squared += total;
}

}  // namespace trainyard::cpu
