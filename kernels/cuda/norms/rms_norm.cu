// Bound by memory: forward reads and writes each element once, backward reads two elements and
// writes one. In backward, each block takes a run of rows, and sums its columns' terms of dgain as
// it goes.

#include <cmath>

#include "kernels/cuda/columns.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/norms/norm_plans.h"

namespace trainyard::cuda {
namespace {

template <typename T>
struct Forward {
  Residual<T> residual;
  const T* gain;
  T* y;
  Accumulate<T>* rstd;
  Accumulate<T> eps, gain_offset;
  int64_t rows, columns;
};

template <typename T>
using ForwardBlocks = Resident<T, 8, 8, 5, 2, 1>;

template <typename T, int kHeld, int kThreads>
__global__ void __launch_bounds__(kThreads, ForwardBlocks<T>::of(kHeld, kThreads))
    ForwardKernel(Forward<T> args) {
  using A = Accumulate<T>;
  HeldRow<T, kHeld> gain;
  if constexpr (kHeld > 0) {
    ForRow<T, kHeld>(args.columns, [&](int64_t i, int n) { gain.Load(args.gain, i, n); });
  }
  for (int64_t t = blockIdx.x; t < args.rows; t += gridDim.x) {
    const int64_t row = t * args.columns;
    HeldRow<T, kHeld> h;
    A squares = 0;
    args.residual.Row(row, args.columns, h, [&](int64_t, int n) {
      for (int k = 0; k < h.kCount; ++k) squares += h.at(n, k) * h.at(n, k);
    });
    const A r = A(1) / std::sqrt(BlockSum(squares) / A(args.columns) + args.eps);
    if (threadIdx.x == 0) args.rstd[t] = r;
    const auto load = [&](int64_t i, int n) {
      h.Reload(args.residual.kept() + row, i, n);
      gain.Reload(args.gain, i, n);
    };
    ForRow<T, kHeld>(args.columns, load, [&](int64_t i, int n) {
      Pack<T, h.kCount> y;
      for (int k = 0; k < h.kCount; ++k)
        y.v[k] = T(h.at(n, k) * r * (gain.at(n, k) + args.gain_offset));
      StoreRow(args.y + row + i, y);
    });
  }
}

template <typename T>
struct Backward {
  const T* dy;
  const T* x;
  const T* gain;
  const Accumulate<T>* rstd;
  Accumulate<T> gain_offset;
  const T* dsum;  // May be null.
  T* dx;
  Accumulate<T>* dgain;  // [runs, D]: for each run of rows.
  RowRuns rows;
};

template <typename T>
using BackwardBlocks = Resident<T, 4, 4, 3, 2>;

template <typename T, int kHeld, int kThreads>
__global__ void __launch_bounds__(kThreads, BackwardBlocks<T>::of(kHeld, kThreads))
    BackwardKernel(Backward<T> args) {
  using A = Accumulate<T>;
  const int64_t columns = args.rows.columns, begin = blockIdx.x * args.rows.length;
  const int64_t end = std::min(args.rows.rows, begin + args.rows.length);
  HeldSums<T, kHeld> dgain(args.dgain + blockIdx.x * columns, columns);
  HeldRow<T, kHeld> gain;
  if constexpr (kHeld > 0) {
    ForRow<T, kHeld>(columns, [&](int64_t i, int n) { gain.Load(args.gain, i, n); });
  }
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = t * columns;
    const A r = args.rstd[t];
    HeldRow<T, kHeld> x, dy, dsum;
    const auto load = [&](int64_t i, int n) {
      x.Load(args.x + row, i, n);
      dy.Load(args.dy + row, i, n);
      gain.Reload(args.gain, i, n);
    };
    A dot = 0;
    ForRow<T, kHeld>(columns, load, [&](int64_t i, int n) {
      for (int k = 0; k < x.kCount; ++k) {
        const A term = dy.at(n, k) * x.at(n, k) * r;
        dgain.Add(i, n, k, term);
        dot += term * (gain.at(n, k) + args.gain_offset);
      }
    });
    const A along = BlockSum(dot) * r / A(columns);
    const auto reload = [&](int64_t i, int n) {
      if constexpr (kHeld == 0) load(i, n);
      if (args.dsum != nullptr) dsum.Load(args.dsum + row, i, n);
    };
    ForRow<T, kHeld>(columns, reload, [&](int64_t i, int n) {
      Pack<T, x.kCount> dx;
      for (int k = 0; k < x.kCount; ++k) {
        const A other = args.dsum != nullptr ? dsum.at(n, k) : A(0);
        dx.v[k] =
            T(r * (dy.at(n, k) * (gain.at(n, k) + args.gain_offset) - x.at(n, k) * along) + other);
      }
      StoreRow(args.dx + row + i, dx);
    });
  }
  dgain.Store(columns);
}

}  // namespace

void RmsNormForward(Exec& exec, const RmsNormForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    using Forms = RmsNormForwardForms<T>;
    const Forward<T> forward = {.residual = {args.x, args.addend, args.sum},
                                .gain = args.gain.as<T>(),
                                .y = args.y.as<T>(),
                                .rstd = args.rstd.as<A>(),
                                .eps = A(args.eps),
                                .gain_offset = A(args.gain_offset),
                                .rows = args.x.shape.rows(),
                                .columns = args.x.shape.back()};
    const RowPlan plan = PlanOf<T>(args);
    DispatchRows<Forms::kMostHeld, Forms::kMostThreads>(plan, [&](auto held, auto threads) {
      Launch(exec, {std::min(forward.rows, ForwardBlocks<T>::Wave(plan)), plan.threads},
             ForwardKernel<T, held(), threads()>, forward);
    });
  });
}

void RmsNormBackward(Exec& exec, const RmsNormBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    using Forms = RmsNormBackwardForms;
    const int64_t columns = args.x.shape.back();
    const RowPlan plan = PlanOf<T>(args);
    const RowRuns rows = InRuns(args.x.shape.rows(), columns, BackwardBlocks<T>::Wave(plan));
    const Backward<T> backward = {.dy = args.dy.as<T>(),
                                  .x = args.x.as<T>(),
                                  .gain = args.gain.as<T>(),
                                  .rstd = args.rstd.as<A>(),
                                  .gain_offset = A(args.gain_offset),
                                  .dsum = args.dsum.data == nullptr ? nullptr : args.dsum.as<T>(),
                                  .dx = args.dx.as<T>(),
                                  .dgain = ScratchOf<A>(exec, rows.runs() * columns),
                                  .rows = rows};
    DispatchRows<Forms::kMostHeld, Forms::kMostThreads>(plan, [&](auto held, auto threads) {
      Launch(exec, {rows.runs(), plan.threads}, BackwardKernel<T, held(), threads()>, backward);
    });
    AddRuns(exec, backward.dgain, rows.runs(),
            ColumnOutputs<A, 1>{{args.dgain.as<A>()}, columns, args.write});
  });
}

}  // namespace trainyard::cuda
