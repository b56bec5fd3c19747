// Bound by memory: one read and one write of the rows. The bias comes from the cache.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/elementwise/add_bias.h"

namespace trainyard::cuda {
namespace {

template <typename T>
struct AddBiasBody {
  const T* x;
  const T* bias;
  T* y;
  int64_t columns;

  template <int kCount>
  __device__ void operator()(int64_t i) const {
    using A = Accumulate<T>;
    const auto xs = LoadPack<T, kCount>(x + i), biases = LoadPack<T, kCount>(bias + i % columns);
    Pack<T, kCount> ys;
    for (int n = 0; n < kCount; ++n) ys.v[n] = T(A(xs.v[n]) + A(biases.v[n]));
    StorePack(y + i, ys);
  }
};

}  // namespace

void AddBias(Exec& exec, const AddBiasArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const int64_t columns = args.x.shape.back();
    const AddBiasBody<T> body = {args.x.as<T>(), args.bias.as<T>(), args.y.as<T>(), columns};
    ForEachPack<T>(exec, args.x.elements(), CanPack<T>(columns, body.x, body.bias, body.y), body);
  });
}

}  // namespace trainyard::cuda
