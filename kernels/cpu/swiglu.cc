#include "kernels/swiglu.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

void SwiGluForward(Exec& exec, const SwiGluForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const int64_t f = args.y.shape.back();
    const T* x = args.x.as<T>();
    T* y = args.y.as<T>();
    ParallelRows(exec, args.y.shape.rows(), f, [=](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const T* gate = x + t * 2 * f;
        const T* up = gate + f;
        T* out = y + t * f;
#pragma omp simd
        for (int64_t i = 0; i < f; ++i) out[i] = T(A(gate[i]) * Sigmoid(A(gate[i])) * A(up[i]));
      }
    });
  });
}

void SwiGluBackward(Exec& exec, const SwiGluBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const int64_t f = args.dy.shape.back();
    const T* x = args.x.as<T>();
    const T* dy = args.dy.as<T>();
    T* dx = args.dx.as<T>();
    ParallelRows(exec, args.dy.shape.rows(), 2 * f, [=](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const T* gate = x + t * 2 * f;
        const T* up = gate + f;
        T* dgate = dx + t * 2 * f;
        T* dup = dgate + f;
        const T* dout = dy + t * f;
#pragma omp simd
        for (int64_t i = 0; i < f; ++i) {
          const A g = gate[i], u = up[i], d = dout[i], s = Sigmoid(g);
          dgate[i] = T(d * u * s * (A(1) + g * (A(1) - s)));
          dup[i] = T(d * g * s);
        }
      }
    });
  });
}

}  // namespace trainyard::cpu
