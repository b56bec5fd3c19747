#include "kernels/cuda/elementwise/scaled_rows.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/math.h"
#include "kernels/elementwise/scaled_swiglu.h"

namespace trainyard::cuda {
namespace {

// The clamped form and its derivatives.
template <typename A>
struct ClampedSwiGlu {
  bool gate_free, up_free;  // Within their limits.
  A g, u, s;
  __device__ ClampedSwiGlu(A gate, A up, A limit)
      : gate_free(!(gate > limit)),
        up_free(!(up > limit || up < -limit)),
        g(gate > limit ? limit : gate),
        u(up > limit    ? limit
          : up < -limit ? -limit
                        : up),
        s(Sigmoid(A(kClampedSwiGluSlope) * g)) {}
  __device__ A value() const { return g * s * (u + A(1)); }
  __device__ A dg() const {
    return gate_free ? (u + A(1)) * s * (A(1) + A(kClampedSwiGluSlope) * g * (A(1) - s)) : A(0);
  }
  __device__ A du() const { return up_free ? g * s : A(0); }
};

template <typename T>
struct Forward {
  using A = Accumulate<T>;
  const T* x;
  const A* w;
  const int32_t* count;
  T* y;
  int64_t bound, f;
  A limit;
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
  A limit;
  Failure fail = {};
};

template <int kCount, typename T, bool kClamped>
__global__ void __launch_bounds__(256) ForwardKernel(Forward<T> args) {
  using A = Accumulate<T>;
  const int64_t f = args.f, rows = RowsOf(args, "scaled_swiglu count: % of %");
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const T* gate = args.x + r * 2 * f;
    const A weight = args.w[r];
    for (int64_t i = threadIdx.x * kCount; i < f; i += blockDim.x * kCount) {
      const auto gates = LoadPack<T, kCount>(gate + i), ups = LoadPack<T, kCount>(gate + f + i);
      Pack<T, kCount> ys;
      for (int n = 0; n < kCount; ++n) {
        const A g = gates.v[n], u = ups.v[n];
        if constexpr (kClamped) {
          ys.v[n] = T(weight * ClampedSwiGlu<A>(g, u, args.limit).value());
        } else {
          ys.v[n] = T(weight * SwiGlu(g, u));
        }
      }
      StorePack(args.y + r * f + i, ys);
    }
  }
}

template <int kCount, typename T, bool kClamped>
__global__ void __launch_bounds__(256) BackwardKernel(Backward<T> args) {
  using A = Accumulate<T>;
  const int64_t f = args.f, rows = RowsOf(args, "scaled_swiglu count: % of %");
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const T* gate = args.x + r * 2 * f;
    T* dgate = args.dx + r * 2 * f;
    const A weight = args.w[r];
    A along = 0;
    for (int64_t i = threadIdx.x * kCount; i < f; i += blockDim.x * kCount) {
      const auto gates = LoadPack<T, kCount>(gate + i), ups = LoadPack<T, kCount>(gate + f + i);
      const auto dys = LoadPack<T, kCount>(args.dy + r * f + i);
      Pack<T, kCount> dgates, dups;
      for (int n = 0; n < kCount; ++n) {
        const A d = dys.v[n], g = gates.v[n], u = ups.v[n];
        if constexpr (kClamped) {
          const ClampedSwiGlu<A> of(g, u, args.limit);
          along += d * of.value();
          dgates.v[n] = T(weight * (d * of.dg())), dups.v[n] = T(weight * (d * of.du()));
        } else {
          const SwiGluGradient<A> of(d, g, u);
          along += of.along;
          dgates.v[n] = T(weight * of.dg), dups.v[n] = T(weight * of.du);
        }
      }
      StorePack(dgate + i, dgates);
      StorePack(dgate + f + i, dups);
    }
    along = BlockSum(along);  // All have read w[r] before, which may be dw[r].
    if (threadIdx.x == 0) args.dw[r] = along;
  }
}

}  // namespace

// Forward and backward are bound by memory. One block for each row, because dw is a sum over the
// row.
void ScaledSwiGluForward(Exec& exec, const ScaledSwiGluForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const Forward<T> of = {.x = args.x.as<T>(),
                           .w = args.w.as<Accumulate<T>>(),
                           .count = args.count.as<int32_t>(),
                           .y = args.y.as<T>(),
                           .bound = args.y.shape.rows(),
                           .f = args.y.shape.back(),
                           .limit = Accumulate<T>(args.limit)};
    const bool packed = CanPack<T>(of.f, of.x, of.y);
    if (args.limit > 0) {
      LaunchRows<T>(exec, of, packed, ForwardKernel<kPackOf<T>, T, true>,
                    ForwardKernel<1, T, true>);
    } else {
      LaunchRows<T>(exec, of, packed, ForwardKernel<kPackOf<T>, T, false>,
                    ForwardKernel<1, T, false>);
    }
  });
}

void ScaledSwiGluBackward(Exec& exec, const ScaledSwiGluBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const Backward<T> of = {.dy = args.dy.as<T>(),
                            .x = args.x.as<T>(),
                            .w = args.w.as<Accumulate<T>>(),
                            .count = args.count.as<int32_t>(),
                            .dx = args.dx.as<T>(),
                            .dw = args.dw.as<Accumulate<T>>(),
                            .bound = args.dy.shape.rows(),
                            .f = args.dy.shape.back(),
                            .limit = Accumulate<T>(args.limit)};
    const bool packed = CanPack<T>(of.f, of.dy, of.x, of.dx);
    if (args.limit > 0) {
      LaunchRows<T>(exec, of, packed, BackwardKernel<kPackOf<T>, T, true>,
                    BackwardKernel<1, T, true>);
    } else {
      LaunchRows<T>(exec, of, packed, BackwardKernel<kPackOf<T>, T, false>,
                    BackwardKernel<1, T, false>);
    }
  });
}

}  // namespace trainyard::cuda
