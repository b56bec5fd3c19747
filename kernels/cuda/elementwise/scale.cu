#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/elementwise/scale.h"

namespace trainyard::cuda {
namespace {

template <typename T>
struct ScaleBody {
  const T* x;
  T* y;
  Accumulate<T> factor;

  template <int kCount>
  __device__ void operator()(int64_t i) const {
    const auto xs = LoadPack<T, kCount>(x + i);
    Pack<T, kCount> ys;
    for (int n = 0; n < kCount; ++n) ys.v[n] = T(factor * Accumulate<T>(xs.v[n]));
    StorePack(y + i, ys);
  }
};

}  // namespace

void Scale(Exec& exec, const ScaleArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const ScaleBody<T> body = {args.x.as<T>(), args.y.as<T>(), Accumulate<T>(args.factor)};
    const int64_t count = args.x.elements();
    ForEachPack<T>(exec, count, CanPack<T>(count, body.x, body.y), body);
  });
}

}  // namespace trainyard::cuda
