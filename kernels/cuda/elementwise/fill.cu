#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/elementwise/fill.h"

namespace trainyard::cuda {
namespace {

template <typename T>
struct FillBody {
  T* y;
  T value;

  template <int kCount>
  __device__ void operator()(int64_t i) const {
    Pack<T, kCount> ys;
    for (int n = 0; n < kCount; ++n) ys.v[n] = value;
    StorePack(y + i, ys);
  }
};

}  // namespace

// Bound by memory.
void Fill(Exec& exec, const FillArgs& args) {
  DispatchFloat(args.y.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const FillBody<T> body = {args.y.as<T>(), T(Accumulate<T>(args.value))};
    const int64_t count = args.y.elements();
    ForEachPack<T>(exec, count, CanPack<T>(count, body.y), body);
  });
}

}  // namespace trainyard::cuda
