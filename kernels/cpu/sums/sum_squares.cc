#include "kernels/sums/sum_squares.h"

#include <numeric>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

// Computes many sums side by side: a single sum would have to wait for each addition.
template <typename T>
double SumOfSquares(const T* x, int64_t n) {
  constexpr int64_t kSums = 32;
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
#pragma omp simd
    for (int64_t j = 0; j < kSums; ++j) {
      const double value = Accumulate<T>(x[i + j]);
      sums[j] += value * value;
    }
  }
  for (; i < n; ++i) sums[0] += double(Accumulate<T>(x[i])) * double(Accumulate<T>(x[i]));
  return std::accumulate(sums, sums + kSums, 0.0);
}

}  // namespace

// The chunks depend only on the length, so the sum does not depend on the number of threads.
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
        sums[c] = SumOfSquares(x + c * chunk, std::min(chunk, n - c * chunk));
      }
    });
  });
  double total = 0;
  for (int64_t c = 0; c < chunks; ++c) total += sums[c];
  args.state->grad_norm_squared += total;
}

}  // namespace trainyard::cpu
