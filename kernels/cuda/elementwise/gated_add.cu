// The kernels are bound by memory. For each element, forward reads two values and writes one, and
// so does backward. In backward, a block takes a run of rows of one sample and adds up the terms of
// dgate of the run.

#include "kernels/cuda/context.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/samples.h"
#include "kernels/elementwise/gated_add.h"

namespace trainyard::cuda {
namespace {

template <typename T>
struct ForwardBody {
  const T* x;
  const T* gate;
  const T* h;
  SampleRows of;
  T* y;
  int64_t columns;

  template <int kCount>
  __device__ void operator()(int64_t t, int64_t c) const {
    using A = Accumulate<T>;
    const int64_t at = t * columns + c;
    const auto xs = LoadPack<T, kCount>(x + at), hs = LoadPack<T, kCount>(h + at);
    const auto gates = LoadPack<T, kCount>(gate + of.sample_of(t) * columns + c);
    Pack<T, kCount> ys;
    for (int n = 0; n < kCount; ++n) ys.v[n] = T(A(xs.v[n]) + A(gates.v[n]) * A(hs.v[n]));
    StorePack(y + at, ys);
  }
};

template <typename T>
struct Backward {
  const T* dy;
  const T* gate;
  const T* h;
  T* dh;
  Accumulate<T>* sums;  // [runs, D]: dgate of each run of rows.
  SampleRuns runs;
};

template <typename T>
using BackwardBlocks = Resident<T, 8, 6, 3, 2>;

template <typename T, int kHeld>
__global__ void __launch_bounds__(kMostRowThreads, BackwardBlocks<T>::of(kHeld))
    BackwardKernel(Backward<T> args) {
  const int64_t columns = args.runs.columns, run = blockIdx.x;
  const int64_t begin = args.runs.begin(run), end = args.runs.end(run);
  const T* const of_sample = args.gate + args.runs.sample(run) * columns;
  HeldSums<T, kHeld> dgate(args.sums + run * columns, columns);
  HeldRow<T, kHeld> gate;
  if constexpr (kHeld > 0) {
    ForRow<T, kHeld>(columns, [&](int64_t i, int n) { gate.Load(of_sample, i, n); });
  }
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = t * columns;
    HeldRow<T, kHeld> dy, h;
    const auto load = [&](int64_t i, int n) {
      dy.Load(args.dy + row, i, n);
      h.Load(args.h + row, i, n);
      gate.Reload(of_sample, i, n);
    };
    ForRow<T, kHeld>(columns, load, [&](int64_t i, int n) {
      Pack<T, dy.kCount> dh;
      for (int k = 0; k < dy.kCount; ++k) {
        dgate.Add(i, n, k, dy.at(n, k) * h.at(n, k));
        dh.v[k] = T(dy.at(n, k) * gate.at(n, k));
      }
      StoreRow(args.dh + row + i, dh);
    });
  }
  dgate.Store(columns);
}

}  // namespace

void GatedAddForward(Exec& exec, const GatedAddForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const ForwardBody<T> body = {.x = args.x.as<T>(),
                                 .gate = args.gate.as<T>(),
                                 .h = args.h.as<T>(),
                                 .of = args.rows,
                                 .y = args.y.as<T>(),
                                 .columns = args.x.shape.back()};
    ForEachPackOfRows<T>(exec, args.x.shape.rows(), body.columns,
                         CanPack<T>(body.columns, body.x, body.gate, body.h, body.y), body);
  });
}

void GatedAddBackward(Exec& exec, const GatedAddBackwardArgs& args) {
  DispatchFloat(args.dy.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    constexpr int kMostHeld = 4;
    const int64_t columns = args.dy.shape.back();
    const RowPlan plan =
        PlanRows<T, kMostHeld>(columns, args.dy.data, args.gate.data, args.h.data, args.dh.data);
    const SampleRuns runs = InRunsOfSamples(args.dy.shape, args.rows, args.gate.shape.rows(),
                                            BackwardBlocks<T>::Wave(plan));
    const Backward<T> backward = {.dy = args.dy.as<T>(),
                                  .gate = args.gate.as<T>(),
                                  .h = args.h.as<T>(),
                                  .dh = args.dh.as<T>(),
                                  .sums = ScratchOf<A>(exec, runs.all() * columns),
                                  .runs = runs};
    DispatchHeld<kMostHeld>(plan.held, [&](auto held) {
      Launch(exec, {runs.all(), plan.threads}, BackwardKernel<T, decltype(held)::value>, backward);
    });
    AddRunsOfSamples(exec, backward.sums, runs, SampleOutputs<T, 1>{{args.dgate.as<T>()}, columns});
  });
}

}  // namespace trainyard::cuda
