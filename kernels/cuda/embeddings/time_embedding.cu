#include <cmath>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/embeddings/time_embedding.h"

namespace trainyard::cuda {
namespace {

template <typename T>
struct TimeBody {
  const int32_t* time;
  T* y;
  int64_t half;

  __device__ void operator()(int64_t i) const {
    const int64_t b = i / half, pair = i % half;
    const double angle = time[b] * std::pow(10000.0, -double(pair) / double(half - 1));
    T* const row = y + b * 2 * half;
    row[pair] = T(Accumulate<T>(std::cos(angle)));
    row[half + pair] = T(Accumulate<T>(std::sin(angle)));
  }
};

}  // namespace

// The kernel is bound by the powers and sinusoids in f64. There are few of them: W for each sample.
void TimeEmbedding(Exec& exec, const TimeEmbeddingArgs& args) {
  DispatchFloat(args.y.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const int64_t half = args.y.shape.back() / 2;
    ForEach(exec, args.y.shape.rows() * half,
            TimeBody<T>{args.time.as<int32_t>(), args.y.as<T>(), half});
  });
}

}  // namespace trainyard::cuda
