// The kernels are bound by memory. For each element, forward reads one value and writes one, and
// backward reads two and writes one. Scales and shifts stay in the cache while the rows of a sample
// are computed. In backward, a block takes a run of rows of one sample and adds up the terms of
// dshift and dscale of the run.

#include <cmath>

#include "kernels/cuda/context.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row.h"
#include "kernels/cuda/samples.h"
#include "kernels/norms/adaptive_norm.h"

namespace trainyard::cuda {
namespace {

template <typename T>
struct Forward {
  const T* x;
  const T* shift;
  const T* scale;
  SampleRows of;
  T* y;
  Accumulate<T>* mean;
  Accumulate<T>* rstd;
  Accumulate<T> eps;
  int64_t rows, columns;
};

template <typename T>
using ForwardBlocks = Resident<T, 8, 6, 5, 3>;

template <typename T, int kHeld>
__global__ void __launch_bounds__(kMostRowThreads, ForwardBlocks<T>::of(kHeld))
    ForwardKernel(Forward<T> args) {
  using A = Accumulate<T>;
  for (int64_t t = blockIdx.x; t < args.rows; t += gridDim.x) {
    const T* const row = args.x + t * args.columns;
    const int64_t sample = args.of.sample_of(t) * args.columns;
    HeldRow<T, kHeld> x, shift, scale;
    A sum = 0, squares = 0;
    const auto load = [&](int64_t i, int n) {
      x.Load(row, i, n);
      if constexpr (kHeld > 0) {  // These loads overlap with the sum of the row.
        shift.Load(args.shift + sample, i, n);
        scale.Load(args.scale + sample, i, n);
      }
    };
    ForRow<T, kHeld>(args.columns, load, [&](int64_t, int n) {
      for (int k = 0; k < x.kCount; ++k) sum += x.at(n, k);
    });
    const A mean = BlockSum(sum) / A(args.columns);
    const auto reload = [&](int64_t i, int n) { x.Reload(row, i, n); };
    ForRow<T, kHeld>(args.columns, reload, [&](int64_t, int n) {
      for (int k = 0; k < x.kCount; ++k) squares += (x.at(n, k) - mean) * (x.at(n, k) - mean);
    });
    const A r = A(1) / std::sqrt(BlockSum(squares) / A(args.columns) + args.eps);
    if (threadIdx.x == 0) {
      args.mean[t] = mean;
      args.rstd[t] = r;
    }
    const auto reload_all = [&](int64_t i, int n) {
      x.Reload(row, i, n);
      shift.Reload(args.shift + sample, i, n);
      scale.Reload(args.scale + sample, i, n);
    };
    ForRow<T, kHeld>(args.columns, reload_all, [&](int64_t i, int n) {
      Pack<T, x.kCount> y;
      for (int k = 0; k < x.kCount; ++k) {
        y.v[k] = T((x.at(n, k) - mean) * r * (A(1) + scale.at(n, k)) + shift.at(n, k));
      }
      StoreRow(args.y + t * args.columns + i, y);
    });
  }
}

template <typename T>
struct Backward {
  const T* dy;
  const T* x;
  const T* scale;
  const Accumulate<T>* mean;
  const Accumulate<T>* rstd;
  T* dx;
  Accumulate<T>* sums;  // [runs, 2, D]: dshift and dscale of each run of rows.
  SampleRuns runs;
};

template <typename T>
using BackwardBlocks = Resident<T, 4, 4, 2, 1>;

template <typename T, int kHeld>
__global__ void __launch_bounds__(kMostRowThreads, BackwardBlocks<T>::of(kHeld))
    BackwardKernel(Backward<T> args) {
  using A = Accumulate<T>;
  const int64_t columns = args.runs.columns, run = blockIdx.x;
  const int64_t begin = args.runs.begin(run), end = args.runs.end(run);
  const T* const of_sample = args.scale + args.runs.sample(run) * columns;
  HeldSums<T, kHeld> dshift(args.sums + 2 * run * columns, columns);
  HeldSums<T, kHeld> dscale(args.sums + (2 * run + 1) * columns, columns);
  HeldRow<T, kHeld> scale;
  if constexpr (kHeld > 0) {
    ForRow<T, kHeld>(columns, [&](int64_t i, int n) { scale.Load(of_sample, i, n); });
  }
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = t * columns;
    const A mean = args.mean[t], r = args.rstd[t];
    HeldRow<T, kHeld> x, dy;
    const auto load = [&](int64_t i, int n) {
      x.Load(args.x + row, i, n);
      dy.Load(args.dy + row, i, n);
      scale.Reload(of_sample, i, n);
    };
    A of_row[2] = {};  // Sums of g = dy (1 + scale), and of g xhat.
    ForRow<T, kHeld>(columns, load, [&](int64_t i, int n) {
      for (int k = 0; k < x.kCount; ++k) {
        const A gain = A(1) + scale.at(n, k), term = dy.at(n, k) * (x.at(n, k) - mean) * r;
        dshift.Add(i, n, k, dy.at(n, k));
        dscale.Add(i, n, k, term);
        of_row[0] += dy.at(n, k) * gain;
        of_row[1] += term * gain;
      }
    });
    BlockSums(of_row);
    const A sum = of_row[0] / A(columns), dot = of_row[1] / A(columns);
    const auto reload = [&](int64_t i, int n) {
      if constexpr (kHeld == 0) load(i, n);
    };
    ForRow<T, kHeld>(columns, reload, [&](int64_t i, int n) {
      Pack<T, x.kCount> dx;
      for (int k = 0; k < x.kCount; ++k) {
        const A xhat = (x.at(n, k) - mean) * r, g = dy.at(n, k) * (A(1) + scale.at(n, k));
        dx.v[k] = T(r * (g - sum - xhat * dot));
      }
      StoreRow(args.dx + row + i, dx);
    });
  }
  dshift.Store(columns);
  dscale.Store(columns);
}

}  // namespace

void AdaptiveNormForward(Exec& exec, const AdaptiveNormForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    constexpr int kMostHeld = 4;
    const Forward<T> forward = {.x = args.x.as<T>(),
                                .shift = args.shift.as<T>(),
                                .scale = args.scale.as<T>(),
                                .of = args.rows,
                                .y = args.y.as<T>(),
                                .mean = args.mean.as<A>(),
                                .rstd = args.rstd.as<A>(),
                                .eps = A(args.eps),
                                .rows = args.x.shape.rows(),
                                .columns = args.x.shape.back()};
    const RowPlan plan = PlanRows<T, kMostHeld>(forward.columns, args.x.data, args.shift.data,
                                                args.scale.data, args.y.data);
    DispatchHeld<kMostHeld>(plan.held, [&](auto held) {
      Launch(exec, {std::min(forward.rows, ForwardBlocks<T>::Wave(plan)), plan.threads},
             ForwardKernel<T, decltype(held)::value>, forward);
    });
  });
}

void AdaptiveNormBackward(Exec& exec, const AdaptiveNormBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    constexpr int kMostHeld = 4;
    const int64_t columns = args.x.shape.back();
    const RowPlan plan =
        PlanRows<T, kMostHeld>(columns, args.dy.data, args.x.data, args.scale.data, args.dx.data);
    const SampleRuns runs = InRunsOfSamples(args.x.shape, args.rows, args.scale.shape.rows(),
                                            BackwardBlocks<T>::Wave(plan));
    const Backward<T> backward = {.dy = args.dy.as<T>(),
                                  .x = args.x.as<T>(),
                                  .scale = args.scale.as<T>(),
                                  .mean = args.mean.as<A>(),
                                  .rstd = args.rstd.as<A>(),
                                  .dx = args.dx.as<T>(),
                                  .sums = ScratchOf<A>(exec, runs.all() * 2 * columns),
                                  .runs = runs};
    DispatchHeld<kMostHeld>(plan.held, [&](auto held) {
      Launch(exec, {runs.all(), plan.threads}, BackwardKernel<T, decltype(held)::value>, backward);
    });
    AddRunsOfSamples(exec, backward.sums, runs,
                     SampleOutputs<T, 2>{{args.dshift.as<T>(), args.dscale.as<T>()}, columns});
  });
}

}  // namespace trainyard::cuda
