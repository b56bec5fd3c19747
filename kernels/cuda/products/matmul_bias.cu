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
  int64_t stride;

  __device__ void operator()(int64_t i) const {
    const int64_t row = i / columns, column = i % columns;
    c[row * stride + column] = C(Accumulate<T>(bias[column]));
  }
};

template <typename T, typename C>
void Fill(Exec& exec, const MatMulArgs& args) {
  const ColumnsView c = ViewOfC(args);
  const BiasBody<T, C> body = {args.bias.as<T>(), c.columns, const_cast<C*>(c.as<C>()), c.stride};
  ForEach(exec, c.rows * c.columns, body);
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
