// Bound by memory: forward reads one element and writes one, backward reads two and writes one. The
// gains come from the cache. In backward, a block takes a run of rows, and sums the terms of its
// columns as it goes.

#include <cmath>

#include "kernels/cuda/columns.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row.h"
#include "kernels/cuda/rows.h"
#include "kernels/norms/magnitude.h"

namespace trainyard::cuda {
namespace {

template <typename T>
struct GainBody {
  const Accumulate<T>* squares;
  const T* offset;
  Accumulate<T>* gain;
  Accumulate<T>* inverse;

  __device__ void operator()(int64_t n) const {
    using A = Accumulate<T>;
    const auto both = LoadPack<A, 2>(squares + 2 * n);
    const A norm = std::sqrt(both.v[1]), magnitude = std::sqrt(both.v[0]) + A(offset[n]);
    inverse[n] = norm > A(0) ? A(1) / norm : A(0);
    gain[n] = norm > A(0) ? magnitude / norm : A(0);
  }
};

template <typename T>
struct ForwardBody {
  const T* z;
  const Accumulate<T>* gain;
  T* y;
  int64_t columns;

  template <int kCount>
  __device__ void operator()(int64_t row, int64_t column) const {
    using A = Accumulate<T>;
    const auto zs = LoadPack<T, kCount>(z + row * columns + column);
    const auto gains = LoadPack<A, kCount>(gain + column);
    Pack<T, kCount> ys;
    for (int n = 0; n < kCount; ++n) ys.v[n] = T(gains.v[n] * A(zs.v[n]));
    StorePack(y + row * columns + column, ys);
  }
};

template <typename T>
struct Backward {
  const T* dy;
  const T* z;
  const Accumulate<T>* gain;
  const Accumulate<T>* inverse;
  T* dz;
  Accumulate<T>* doffset;  // [runs, N]: for each run of rows.
  RowRuns rows;
};

template <typename T>
using BackwardBlocks = Resident<T, 4, 3, 3>;

template <typename T, int kHeld>
__global__ void __launch_bounds__(kMostRowThreads, BackwardBlocks<T>::of(kHeld))
    BackwardKernel(Backward<T> args) {
  using A = Accumulate<T>;
  constexpr int kCount = kRowPack<T, kHeld>;
  const int64_t columns = args.rows.columns, run = blockIdx.x, begin = run * args.rows.length;
  const int64_t end = std::min(args.rows.rows, begin + args.rows.length);
  HeldSums<T, kHeld> doffset(args.doffset + run * columns, columns);
  for (int64_t t = begin; t < end; ++t) {
    HeldRow<T, kHeld> dy, z;
    const auto load = [&](int64_t c, int n) {
      dy.Load(args.dy + t * columns, c, n);
      z.Load(args.z + t * columns, c, n);
    };
    ForRow<T, kHeld>(columns, load, [&](int64_t c, int n) {
      const auto gains = LoadPack<A, kCount>(args.gain + c);
      const auto inverses = LoadPack<A, kCount>(args.inverse + c);
      Pack<T, kCount> dz;
      for (int k = 0; k < kCount; ++k) {
        doffset.Add(c, n, k, dy.at(n, k) * z.at(n, k) * inverses.v[k]);
        dz.v[k] = T(gains.v[k] * dy.at(n, k));
      }
      StoreRow(args.dz + t * columns + c, dz);
    });
  }
  doffset.Store(columns);
}

}  // namespace

void MagnitudeGain(Exec& exec, const MagnitudeGainArgs& args) {
  DispatchFloat(args.offset.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    ForEach(exec, args.offset.elements(),
            GainBody<T>{args.squares.as<A>(), args.offset.as<T>(), args.gain.as<A>(),
                        args.inverse.as<A>()});
  });
}

void MagnitudeForward(Exec& exec, const MagnitudeForwardArgs& args) {
  DispatchFloat(args.z.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const int64_t columns = args.z.shape.back();
    const ForwardBody<T> body = {args.z.as<T>(), args.gain.as<A>(), args.y.as<T>(), columns};
    ForEachPackOfRows<T>(exec, args.z.shape.rows(), columns,
                         CanPack<T>(columns, body.z, body.gain, body.y), body);
  });
}

void MagnitudeBackward(Exec& exec, const MagnitudeBackwardArgs& args) {
  DispatchFloat(args.dy.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    constexpr int kMostHeld = 2;  // More would spill registers.
    const int64_t columns = args.dy.shape.back();
    const RowPlan plan = PlanRows<T, kMostHeld>(columns, args.dy.data, args.z.data, args.gain.data,
                                                args.inverse.data, args.dz.data);
    const RowRuns rows = InRuns(args.dy.shape.rows(), columns, BackwardBlocks<T>::Wave(plan));
    const Backward<T> backward = {.dy = args.dy.as<T>(),
                                  .z = args.z.as<T>(),
                                  .gain = args.gain.as<A>(),
                                  .inverse = args.inverse.as<A>(),
                                  .dz = args.dz.as<T>(),
                                  .doffset = ScratchOf<A>(exec, rows.runs() * columns),
                                  .rows = rows};
    DispatchHeld<kMostHeld>(plan.held, [&](auto held) {
      Launch(exec, {rows.runs(), plan.threads}, BackwardKernel<T, decltype(held)::value>, backward);
    });
    AddRuns(exec, backward.doffset, rows.runs(),
            ColumnOutputs<A, 1>{{args.doffset.as<A>()}, columns, args.write});
  });
}

}  // namespace trainyard::cuda
