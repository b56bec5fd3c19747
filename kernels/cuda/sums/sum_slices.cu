// Bound by memory: each slice is read once.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/sums/sum_slices.h"

namespace trainyard::cuda {
namespace {

template <typename T>
struct SumSlicesBody {
  const T* x;
  T* y;
  int64_t slices;
  int64_t elements;  // Per slice.

  template <int kCount>
  __device__ void operator()(int64_t i) const {
    using A = Accumulate<T>;
    A sums[kCount];
    const auto first = LoadPack<T, kCount>(x + i);
    for (int n = 0; n < kCount; ++n) sums[n] = A(first.v[n]);
#pragma unroll 4
    for (int64_t k = 1; k < slices; ++k) {
      const auto xs = LoadPack<T, kCount>(x + k * elements + i);
      for (int n = 0; n < kCount; ++n) sums[n] += A(xs.v[n]);
    }
    Pack<T, kCount> ys;
    for (int n = 0; n < kCount; ++n) ys.v[n] = T(sums[n]);
    StorePack(y + i, ys);
  }
};

}  // namespace

void SumSlices(Exec& exec, const SumSlicesArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const int64_t elements = args.y.elements();
    const SumSlicesBody<T> body = {args.x.as<T>(), args.y.as<T>(), args.x.elements() / elements,
                                   elements};
    ForEachPack<T>(exec, elements, CanPack<T>(elements, body.x, body.y), body);
  });
}

}  // namespace trainyard::cuda
