#include "kernels/norms/magnitude.h"

#include <cmath>

#include "kernels/cpu/columns.h"
#include "kernels/cpu/kernels.h"

namespace trainyard::cpu {

void MagnitudeGain(Exec& exec, const MagnitudeGainArgs& args) {
  DispatchFloat(args.offset.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const A* squares = args.squares.as<A>();
    const T* offset = args.offset.as<T>();
    A *gain = args.gain.as<A>(), *inverse = args.inverse.as<A>();
    ParallelElements(exec, args.offset.elements(), [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const A norm = std::sqrt(squares[2 * n + 1]);
        inverse[n] = norm > A(0) ? A(1) / norm : A(0);
        gain[n] = norm > A(0) ? (std::sqrt(squares[2 * n]) + A(offset[n])) / norm : A(0);
      }
    });
  });
}

void MagnitudeForward(Exec& exec, const MagnitudeForwardArgs& args) {
  DispatchFloat(args.z.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const int64_t n = args.z.shape.back();
    const T* z = args.z.as<T>();
    const A* gain = args.gain.as<A>();
    T* y = args.y.as<T>();
    ParallelRows(exec, args.z.shape.rows(), n, [=](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
#pragma omp simd
        for (int64_t c = 0; c < n; ++c) y[t * n + c] = T(gain[c] * A(z[t * n + c]));
      }
    });
  });
}

void MagnitudeBackward(Exec& exec, const MagnitudeBackwardArgs& args) {
  DispatchFloat(args.dy.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const int64_t n = args.dy.shape.back();
    const T *dy = args.dy.as<T>(), *z = args.z.as<T>();
    const A *gain = args.gain.as<A>(), *inverse = args.inverse.as<A>();
    T* dz = args.dz.as<T>();
    SumRows<1, A>(exec, args.dy.shape, {args.doffset.as<A>()}, args.write,
                  [=](int64_t begin, int64_t end, std::array<A*, 1> sums) {
                    for (int64_t t = begin; t < end; ++t) {
#pragma omp simd
                      for (int64_t c = 0; c < n; ++c) {
                        const A of_y = A(dy[t * n + c]), of_z = A(z[t * n + c]);
                        sums[0][c] += of_y * of_z * inverse[c];
                        dz[t * n + c] = T(gain[c] * of_y);
                      }
                    }
                  });
  });
}

}  // namespace trainyard::cpu
