#include "kernels/elementwise/gated_add.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/samples.h"

namespace trainyard::cpu {
namespace {

template <typename T>
void Forward(const Exec& exec, const GatedAddForwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t d = args.x.shape.back();
  const T* const x = args.x.as<T>();
  const T* const h = args.h.as<T>();
  const T* const gates = args.gate.as<T>();
  T* const y = args.y.as<T>();
  const SampleRows rows = args.rows;
  ParallelRows(exec, args.x.shape.rows(), d, [=](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const T* gate = gates + rows.sample_of(t) * d;
      const T* of_x = x + t * d;
      const T* of_h = h + t * d;
      T* to = y + t * d;
#pragma omp simd
      for (int64_t i = 0; i < d; ++i) to[i] = T(A(of_x[i]) + A(gate[i]) * A(of_h[i]));
    }
  });
}

template <typename T>
void Backward(Exec& exec, const GatedAddBackwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t d = args.dy.shape.back();
  const T* const dy_data = args.dy.as<T>();
  const T* const h_data = args.h.as<T>();
  const T* const gates = args.gate.as<T>();
  T* const dh_data = args.dh.as<T>();
  const auto rows = [=](int64_t begin, int64_t end, int64_t sample, std::array<A*, 1> sums) {
    for (int64_t t = begin; t < end; ++t) {
      const T* dy = dy_data + t * d;
      const T* h = h_data + t * d;
      const T* gate = gates + sample * d;
      T* dh = dh_data + t * d;
      A* dgate = sums[0];
#pragma omp simd
      for (int64_t i = 0; i < d; ++i) {
        const A g = A(dy[i]);
        dgate[i] += g * A(h[i]);
        dh[i] = T(g * A(gate[i]));
      }
    }
  };
  SumSamples<1, A>(exec, args.dy.shape, args.rows, {args.dgate}, rows);
}

}  // namespace

void GatedAddForward(Exec& exec, const GatedAddForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { Forward<decltype(scalar)>(exec, args); });
}

void GatedAddBackward(Exec& exec, const GatedAddBackwardArgs& args) {
  DispatchFloat(args.dy.dtype, [&](auto scalar) { Backward<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cpu
