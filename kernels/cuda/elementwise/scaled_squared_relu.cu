#include "kernels/cuda/elementwise/scaled_rows.h"
#include "kernels/cuda/kernels.h"
#include "kernels/elementwise/scaled_squared_relu.h"

namespace trainyard::cuda {
namespace {

// A value that is no number stays none.
template <typename A>
__device__ A Positive(A x) {
  return x < A(0) ? A(0) : x;
}

template <typename T>
struct Forward {
  using A = Accumulate<T>;
  const T* x;
  const A* w;
  const int32_t* count;
  T* y;
  int64_t bound, f;
  Failure fail = {};
};

template <typename T>
struct Backward {
  using A = Accumulate<T>;
  const T* dy;
  const T* x;
  const A* w;
  const int32_t* count;
  T* dx;
  A* dw;
  int64_t bound, f;
  Failure fail = {};
};

template <int kCount, typename T>
__global__ void __launch_bounds__(256) ForwardKernel(Forward<T> args) {
  using A = Accumulate<T>;
  const int64_t f = args.f, rows = RowsOf(args, "scaled_squared_relu count: % of %");
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const A weight = args.w[r];
    for (int64_t i = threadIdx.x * kCount; i < f; i += blockDim.x * kCount) {
      const auto xs = LoadPack<T, kCount>(args.x + r * f + i);
      Pack<T, kCount> ys;
      for (int n = 0; n < kCount; ++n) {
        const A positive = Positive(A(xs.v[n]));
        ys.v[n] = T(weight * positive * positive);
      }
      StorePack(args.y + r * f + i, ys);
    }
  }
}

template <int kCount, typename T>
__global__ void __launch_bounds__(256) BackwardKernel(Backward<T> args) {
  using A = Accumulate<T>;
  const int64_t f = args.f, rows = RowsOf(args, "scaled_squared_relu count: % of %");
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const A weight = args.w[r];
    A along = 0;
    for (int64_t i = threadIdx.x * kCount; i < f; i += blockDim.x * kCount) {
      const auto xs = LoadPack<T, kCount>(args.x + r * f + i);
      const auto dys = LoadPack<T, kCount>(args.dy + r * f + i);
      Pack<T, kCount> dxs;
      for (int n = 0; n < kCount; ++n) {
        const A positive = Positive(A(xs.v[n])), d = dys.v[n];
        along += d * positive * positive;
        dxs.v[n] = T(A(2) * weight * d * positive);
      }
      StorePack(args.dx + r * f + i, dxs);
    }
    along = BlockSum(along);  // All have read w[r] before, which may be dw[r].
    if (threadIdx.x == 0) args.dw[r] = along;
  }
}

}  // namespace

// Forward and backward are bound by memory. One block for each row, because dw is a sum over the
// row.
void ScaledSquaredReluForward(Exec& exec, const ScaledSquaredReluForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const Forward<T> of = {.x = args.x.as<T>(),
                           .w = args.w.as<Accumulate<T>>(),
                           .count = args.count.as<int32_t>(),
                           .y = args.y.as<T>(),
                           .bound = args.y.shape.rows(),
                           .f = args.y.shape.back()};
    LaunchRows<T>(exec, of, CanPack<T>(of.f, of.x, of.y), ForwardKernel<kPackOf<T>, T>,
                  ForwardKernel<1, T>);
  });
}

void ScaledSquaredReluBackward(Exec& exec, const ScaledSquaredReluBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const Backward<T> of = {.dy = args.dy.as<T>(),
                            .x = args.x.as<T>(),
                            .w = args.w.as<Accumulate<T>>(),
                            .count = args.count.as<int32_t>(),
                            .dx = args.dx.as<T>(),
                            .dw = args.dw.as<Accumulate<T>>(),
                            .bound = args.dy.shape.rows(),
                            .f = args.dy.shape.back()};
    LaunchRows<T>(exec, of, CanPack<T>(of.f, of.dy, of.x, of.dx), BackwardKernel<kPackOf<T>, T>,
                  BackwardKernel<1, T>);
  });
}

}  // namespace trainyard::cuda
