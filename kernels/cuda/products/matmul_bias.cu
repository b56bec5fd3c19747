#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/products/matmul_bias.h"

namespace trainyard::cuda {
namespace {

template <typename T, typename C>
struct BiasBody {
  const T* bias;
  int64_t columns;
  C* c;

  __device__ void operator()(int64_t i) const { c[i] = C(Accumulate<T>(bias[i % columns])); }
};

template <typename T, typename C>
void Fill(Exec& exec, const MatMulArgs& args) {
  const BiasBody<T, C> body = {args.bias.as<T>(), args.c.shape.back(), args.c.as<C>()};
  ForEach(exec, args.c.elements(), body);
}

}  // namespace

void FillWithBias(Exec& exec, const MatMulArgs& args) {
  DispatchFloat(args.bias.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    if (args.c.dtype == args.bias.dtype) return Fill<T, T>(exec, args);
    if constexpr (std::is_same_v<T, bf16>) Fill<bf16, float>(exec, args);
  });
}

}  // namespace trainyard::cuda
