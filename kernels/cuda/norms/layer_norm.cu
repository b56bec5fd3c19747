// Bound by memory: forward reads and writes each element once, backward reads two elements and
// writes one. In backward, each block takes a run of rows, and sums its columns' terms of dgain and
// dbias as it goes: in registers, or for the widest rows in shared memory.

#include <cmath>

#include "kernels/cuda/columns.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/norms/norm_plans.h"

namespace trainyard::cuda {
namespace {

// A row of gains or biases.
template <typename T, int kHeld, bool kWide>
using Parameters = std::conditional_t<kWide, ReloadedRow<T, kHeld>, HeldRow<T, kHeld>>;

template <typename T>
struct Forward {
  Residual<T> residual;
  const T* gain;
  const T* bias;
  T* y;
  Accumulate<T>* mean;
  Accumulate<T>* rstd;
  Accumulate<T> eps, gain_offset;
  int64_t rows, columns;
};

template <typename T>
using ForwardBlocks = Resident<T, 8, 6, 4, 2>;

template <typename T, int kHeld, int kThreads>
__global__ void __launch_bounds__(kThreads, ForwardBlocks<T>::of(kHeld, kThreads))
    ForwardKernel(Forward<T> args) {
  using A = Accumulate<T>;
  constexpr bool kWide = kThreads > LayerNormForwardForms::kMostThreads;
  Parameters<T, kHeld, kWide> gain, bias;
  if constexpr (kHeld > 0) {
    ForRow<T, kHeld>(args.columns, [&](int64_t i, int n) {
      gain.Load(args.gain, i, n);
      bias.Load(args.bias, i, n);
    });
  }
  for (int64_t t = blockIdx.x; t < args.rows; t += gridDim.x) {
    const int64_t row = t * args.columns;
    const T* kept = args.residual.kept() + row;
    HeldRow<T, kHeld> h;
    A sum = 0, squares = 0;
    args.residual.Row(row, args.columns, h, [&](int64_t, int n) {
      for (int k = 0; k < h.kCount; ++k) sum += h.at(n, k);
    });
    const A mean = BlockSum(sum) / A(args.columns);
    const auto reload = [&](int64_t i, int n) { h.Reload(kept, i, n); };
    ForRow<T, kHeld>(args.columns, reload, [&](int64_t, int n) {
      for (int k = 0; k < h.kCount; ++k) squares += (h.at(n, k) - mean) * (h.at(n, k) - mean);
    });
    const A r = A(1) / std::sqrt(BlockSum(squares) / A(args.columns) + args.eps);
    if (threadIdx.x == 0) {
      args.mean[t] = mean;
      args.rstd[t] = r;
    }
    ForRow<T, kHeld>(args.columns, reload, [&](int64_t i, int n) {
      gain.Reload(args.gain, i, n);
      bias.Reload(args.bias, i, n);
      Pack<T, h.kCount> y;
      for (int k = 0; k < h.kCount; ++k) {
        y.v[k] = T((h.at(n, k) - mean) * r * (gain.at(n, k) + args.gain_offset) + bias.at(n, k));
      }
      StoreRow(args.y + row + i, y);
    });
  }
}

template <typename T>
struct Backward {
  const T* dy;
  const T* x;
  const T* gain;
  const Accumulate<T>* mean;
  const Accumulate<T>* rstd;
  Accumulate<T> gain_offset;
  const T* dsum;  // May be null.
  T* dx;
  Accumulate<T>* sums;  // [runs, 2, D]: dgain and dbias of each run of rows.
  RowRuns rows;
};

template <typename T>
using BackwardBlocks = Resident<T, 4, 4, 2, 1>;

template <typename T, int kHeld, int kThreads>
__global__ void __launch_bounds__(kThreads, BackwardBlocks<T>::of(kHeld, kThreads))
    BackwardKernel(Backward<T> args) {
  using A = Accumulate<T>;
  const int64_t columns = args.rows.columns, begin = blockIdx.x * args.rows.length;
  const int64_t end = std::min(args.rows.rows, begin + args.rows.length);
  constexpr bool kWide = kThreads > LayerNormBackwardForms::kMostThreads;
  const auto sums_of = [&](int i) {
    return HeldSums < T, kHeld,
           kWide ? kThreads : 0 > (args.sums + (2 * blockIdx.x + i) * columns, columns, i);
  };
  auto dgain = sums_of(0), dbias = sums_of(1);
  Parameters<T, kHeld, kWide> gain;
  if constexpr (kHeld > 0) {
    ForRow<T, kHeld>(columns, [&](int64_t i, int n) { gain.Load(args.gain, i, n); });
  }
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = t * columns;
    const A mean = args.mean[t], r = args.rstd[t];
    HeldRow<T, kHeld> x, dy, dsum;
    const auto load = [&](int64_t i, int n) {
      x.Load(args.x + row, i, n);
      dy.Load(args.dy + row, i, n);
    };
    A of_row[2] = {};  // Sums of dy gain, and of dy gain hhat.
    ForRow<T, kHeld>(columns, load, [&](int64_t i, int n) {
      gain.Reload(args.gain, i, n);
      for (int k = 0; k < x.kCount; ++k) {
        const A term = dy.at(n, k) * (x.at(n, k) - mean) * r;
        dgain.Add(i, n, k, term);
        dbias.Add(i, n, k, dy.at(n, k));
        of_row[0] += dy.at(n, k) * (gain.at(n, k) + args.gain_offset);
        of_row[1] += term * (gain.at(n, k) + args.gain_offset);
      }
    });
    BlockSums(of_row);
    const A sum = of_row[0] / A(columns), dot = of_row[1] / A(columns);
    const auto reload = [&](int64_t i, int n) {
      if constexpr (kHeld == 0) load(i, n);
      if (args.dsum != nullptr) dsum.Load(args.dsum + row, i, n);
    };
    ForRow<T, kHeld>(columns, reload, [&](int64_t i, int n) {
      gain.Reload(args.gain, i, n);
      Pack<T, x.kCount> dx;
      for (int k = 0; k < x.kCount; ++k) {
        const A hhat = (x.at(n, k) - mean) * r, other = args.dsum != nullptr ? dsum.at(n, k) : A(0);
        dx.v[k] =
            T(r * (dy.at(n, k) * (gain.at(n, k) + args.gain_offset) - sum - hhat * dot) + other);
      }
      StoreRow(args.dx + row + i, dx);
    });
  }
  dgain.Store(columns);
  dbias.Store(columns);
}

}  // namespace

void LayerNormForward(Exec& exec, const LayerNormForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    using Forms = LayerNormForwardForms;
    const Forward<T> forward = {.residual = {args.x, args.addend, args.sum},
                                .gain = args.gain.as<T>(),
                                .bias = args.bias.as<T>(),
                                .y = args.y.as<T>(),
                                .mean = args.mean.as<A>(),
                                .rstd = args.rstd.as<A>(),
                                .eps = A(args.eps),
                                .gain_offset = A(args.gain_offset),
                                .rows = args.x.shape.rows(),
                                .columns = args.x.shape.back()};
    const RowPlan plan = PlanOf<T>(args);
    const auto launch = [&](auto kernel) {
      Launch(exec, {std::min(forward.rows, ForwardBlocks<T>::Wave(plan)), plan.threads}, kernel,
             forward);
    };
    if (plan.threads > Forms::kMostThreads) {
      launch(ForwardKernel<T, Forms::kMostHeld, Forms::kWideThreads>);
    } else {
      DispatchRows<Forms::kMostHeld, Forms::kMostThreads>(
          plan, [&](auto held, auto threads) { launch(ForwardKernel<T, held(), threads()>); });
    }
  });
}

void LayerNormBackward(Exec& exec, const LayerNormBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    using Forms = LayerNormBackwardForms;
    const int64_t columns = args.x.shape.back();
    const RowPlan plan = PlanOf<T>(args);
    const RowRuns rows = InRuns(args.x.shape.rows(), columns, BackwardBlocks<T>::Wave(plan));
    const Backward<T> backward = {.dy = args.dy.as<T>(),
                                  .x = args.x.as<T>(),
                                  .gain = args.gain.as<T>(),
                                  .mean = args.mean.as<A>(),
                                  .rstd = args.rstd.as<A>(),
                                  .gain_offset = A(args.gain_offset),
                                  .dsum = args.dsum.data == nullptr ? nullptr : args.dsum.as<T>(),
                                  .dx = args.dx.as<T>(),
                                  .sums = ScratchOf<A>(exec, rows.runs() * 2 * columns),
                                  .rows = rows};
    if (plan.threads > Forms::kMostThreads) {
      constexpr int kHeld = Forms::kMostHeld;
      constexpr size_t kSums = size_t{2} * kHeld * kPackOf<T> * Forms::kWideThreads;
      Launch(exec, {.blocks = rows.runs(), .threads = plan.threads, .shared = kSums * sizeof(A)},
             BackwardKernel<T, kHeld, Forms::kWideThreads>, backward);
    } else {
      DispatchRows<Forms::kMostHeld, Forms::kMostThreads>(plan, [&](auto held, auto threads) {
        Launch(exec, {rows.runs(), plan.threads}, BackwardKernel<T, held(), threads()>, backward);
      });
    }
    AddRuns(exec, backward.sums, rows.runs(),
            ColumnOutputs<A, 2>{{args.dgain.as<A>(), args.dbias.as<A>()}, columns, args.write});
  });
}

}  // namespace trainyard::cuda
