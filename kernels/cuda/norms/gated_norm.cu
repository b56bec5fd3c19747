// Bound by memory: forward reads two elements and writes one, backward reads three and writes two.
// A block takes a group of columns of a row. In backward, a block takes the same group of a run of
// rows, and sums its columns' terms of dgain as it goes.

#include <cmath>

#include "kernels/cuda/columns.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/row.h"
#include "kernels/norms/gated_norm.h"

namespace trainyard::cuda {
namespace {

template <typename T>
struct Forward {
  const T* x;
  const T* z;
  const T* gain;
  T* y;
  Accumulate<T>* rstd;
  Accumulate<T> eps;
  int64_t groups, rows, width;  // Rows of one group; width of a group.
};

template <typename T>
using ForwardBlocks = Resident<T, 8, 8, 6>;

template <typename T, int kHeld>
__global__ void __launch_bounds__(kMostRowThreads, ForwardBlocks<T>::of(kHeld))
    ForwardKernel(Forward<T> args) {
  using A = Accumulate<T>;
  const int64_t width = args.width;
  for (int64_t i = blockIdx.x; i < args.rows; i += gridDim.x) {
    const int64_t row = i * width;
    const T* const gain = args.gain + i % args.groups * width;
    HeldRow<T, kHeld> x, z;
    const auto load = [&](int64_t c, int n) {
      x.Load(args.x + row, c, n);
      z.Load(args.z + row, c, n);
    };
    A squares = 0;
    ForRow<T, kHeld>(width, load, [&](int64_t, int n) {
      for (int k = 0; k < x.kCount; ++k) {
        const A h = x.at(n, k) * z.at(n, k) * Sigmoid(z.at(n, k));
        squares += h * h;
      }
    });
    const A r = A(1) / std::sqrt(BlockSum(squares) / A(width) + args.eps);
    if (threadIdx.x == 0) args.rstd[i] = r;
    HeldRow<T, kHeld> gains;
    const auto reload = [&](int64_t c, int n) {
      if constexpr (kHeld == 0) load(c, n);
      gains.Load(gain, c, n);
    };
    ForRow<T, kHeld>(width, reload, [&](int64_t c, int n) {
      Pack<T, x.kCount> y;
      for (int k = 0; k < x.kCount; ++k) {
        const A h = x.at(n, k) * z.at(n, k) * Sigmoid(z.at(n, k));
        y.v[k] = T(h * r * gains.at(n, k));
      }
      StoreRow(args.y + row + c, y);
    });
  }
}

template <typename T>
struct Backward {
  const T* dy;
  const T* x;
  const T* z;
  const T* gain;
  const Accumulate<T>* rstd;
  T* dx;
  T* dz;
  Accumulate<T>* dgain;  // [runs, D]: for each run of rows.
  RowRuns rows;
  int64_t groups, width;
};

template <typename T>
using BackwardBlocks = Resident<T, 4, 4, 2>;

template <typename T, int kHeld>
__global__ void __launch_bounds__(kMostRowThreads, BackwardBlocks<T>::of(kHeld))
    BackwardKernel(Backward<T> args) {
  using A = Accumulate<T>;
  const int64_t width = args.width, group = blockIdx.x % args.groups;
  const int64_t run = blockIdx.x / args.groups, begin = run * args.rows.length;
  const int64_t end = std::min(args.rows.rows, begin + args.rows.length);
  const T* const gain = args.gain + group * width;
  HeldSums<T, kHeld> dgain(args.dgain + run * args.rows.columns + group * width, width);
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = (t * args.groups + group) * width;
    const A r = args.rstd[t * args.groups + group];
    HeldRow<T, kHeld> x, z, dy, gains;
    const auto load = [&](int64_t c, int n) {
      x.Load(args.x + row, c, n);
      z.Load(args.z + row, c, n);
      dy.Load(args.dy + row, c, n);
      gains.Load(gain, c, n);
    };
    A dot = 0;
    ForRow<T, kHeld>(width, load, [&](int64_t c, int n) {
      for (int k = 0; k < x.kCount; ++k) {
        const A h = x.at(n, k) * z.at(n, k) * Sigmoid(z.at(n, k));
        const A term = dy.at(n, k) * h * r;
        dgain.Add(c, n, k, term);
        dot += term * gains.at(n, k);
      }
    });
    const A along = BlockSum(dot) * r / A(width);
    const auto reload = [&](int64_t c, int n) {
      if constexpr (kHeld == 0) load(c, n);
    };
    ForRow<T, kHeld>(width, reload, [&](int64_t c, int n) {
      Pack<T, x.kCount> dx, dz;
      for (int k = 0; k < x.kCount; ++k) {
        const A s = Sigmoid(z.at(n, k)), gate = z.at(n, k) * s;
        const A dh = r * (dy.at(n, k) * gains.at(n, k) - x.at(n, k) * gate * along);
        dx.v[k] = T(dh * gate);
        dz.v[k] = T(dh * x.at(n, k) * s * (A(1) + z.at(n, k) * (A(1) - s)));
      }
      StoreRow(args.dx + row + c, dx);
      StoreRow(args.dz + row + c, dz);
    });
  }
  dgain.Store(width);
}

}  // namespace

void GatedNormForward(Exec& exec, const GatedNormForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    constexpr int kMostHeld = 2;  // More would spill registers.
    const Forward<T> forward = {.x = args.x.as<T>(),
                                .z = args.z.as<T>(),
                                .gain = args.gain.as<T>(),
                                .y = args.y.as<T>(),
                                .rstd = args.rstd.as<A>(),
                                .eps = A(args.eps),
                                .groups = args.groups,
                                .rows = args.x.shape.rows() * args.groups,
                                .width = args.x.shape.back() / args.groups};
    const RowPlan plan = PlanRows<T, kMostHeld>(forward.width, args.x.data, args.z.data,
                                                args.gain.data, args.y.data);
    DispatchHeld<kMostHeld>(plan.held, [&](auto held) {
      Launch(exec, {std::min(forward.rows, ForwardBlocks<T>::Wave(plan)), plan.threads},
             ForwardKernel<T, decltype(held)::value>, forward);
    });
  });
}

void GatedNormBackward(Exec& exec, const GatedNormBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    constexpr int kMostHeld = 2;  // More would spill registers.
    const int64_t columns = args.x.shape.back(), width = columns / args.groups;
    const RowPlan plan = PlanRows<T, kMostHeld>(width, args.dy.data, args.x.data, args.z.data,
                                                args.gain.data, args.dx.data, args.dz.data);
    const RowRuns rows = InRuns(args.x.shape.rows(), columns,
                                std::max<int64_t>(1, BackwardBlocks<T>::Wave(plan) / args.groups));
    const Backward<T> backward = {.dy = args.dy.as<T>(),
                                  .x = args.x.as<T>(),
                                  .z = args.z.as<T>(),
                                  .gain = args.gain.as<T>(),
                                  .rstd = args.rstd.as<A>(),
                                  .dx = args.dx.as<T>(),
                                  .dz = args.dz.as<T>(),
                                  .dgain = ScratchOf<A>(exec, rows.runs() * columns),
                                  .rows = rows,
                                  .groups = args.groups,
                                  .width = width};
    DispatchHeld<kMostHeld>(plan.held, [&](auto held) {
      Launch(exec, {rows.runs() * args.groups, plan.threads},
             BackwardKernel<T, decltype(held)::value>, backward);
    });
    AddRuns(exec, backward.dgain, rows.runs(),
            ColumnOutputs<A, 1>{{args.dgain.as<A>()}, columns, args.write});
  });
}

}  // namespace trainyard::cuda
