#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/elementwise/add.h"

namespace trainyard::cuda {
namespace {

template <typename T>
struct AddBody {
  const T* a;
  const T* b;
  T* y;

  template <int kCount>
  __device__ void operator()(int64_t i) const {
    using A = Accumulate<T>;
    const auto as = LoadPack<T, kCount>(a + i), bs = LoadPack<T, kCount>(b + i);
    Pack<T, kCount> ys;
    for (int n = 0; n < kCount; ++n) ys.v[n] = T(A(as.v[n]) + A(bs.v[n]));
    StorePack(y + i, ys);
  }
};

}  // namespace

void Add(Exec& exec, const AddArgs& args) {
  DispatchFloat(args.a.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const AddBody<T> body = {args.a.as<T>(), args.b.as<T>(), args.y.as<T>()};
    const int64_t count = args.a.elements();
    ForEachPack<T>(exec, count, CanPack<T>(count, body.a, body.b, body.y), body);
  });
}

}  // namespace trainyard::cuda
