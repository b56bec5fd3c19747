// All kernels are bound by memory. Logits are read once for the statistics, by one block per row
// that updates the largest logit and the sum. They are read once more for the gradient. Without
// slices of the vocabulary, forward is the case of one slice. loss_and_gradient.cu has the loss and
// its gradient in one kernel.

#include <type_traits>

#include "kernels/cuda/context.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/loss/logits.h"
#include "kernels/cuda/loss/loss_and_gradient.h"
#include "kernels/cuda/rows.h"
#include "kernels/loss/cross_entropy.h"

namespace trainyard::cuda {
namespace {

template <typename A, typename Tensor>
A* OrNull(const Tensor& tensor) {
  return tensor.data == nullptr ? nullptr : tensor.template as<std::remove_const_t<A>>();
}

template <int kCount, typename L>
__global__ void __launch_bounds__(512)
    StatisticsKernel(const L* logits, Targets targets, int64_t rows, Accumulate<L>* statistics) {
  using A = Accumulate<L>;
  const int held = int(targets.held);
  for (int64_t t = blockIdx.x; t < rows; t += gridDim.x) {
    if (threadIdx.x == 0) targets.Check(t);
    const L* row = logits + t * targets.columns;
    const auto pass_over = [](int, const RowPack<L, kCount>&) {};
    const Softmax<L> all = SoftmaxOf<kCount>(row, held, pass_over).OfBlock();
    if (threadIdx.x == 0) {
      const int64_t target = targets.ids[t] - targets.first;
      A* const out = statistics + t * 3;
      out[0] = all.largest;
      out[1] = all.sum;
      out[2] = target >= 0 && target < held ? A(row[target]) : A(0);
    }
  }
}

template <typename L>
void Statistics(Exec& exec, const ConstTensor& logits, const Targets& targets,
                Accumulate<L>* statistics) {
  const L* data = logits.as<L>();
  const int64_t rows = logits.shape.rows();
  const bool packed = CanPack<L>(targets.columns, data);
  const int64_t packs = packed ? targets.columns / kPackOf<L> : targets.columns;
  Launch(exec, {RowBlocks(rows), RowThreads(CeilDiv(packs, kAheadOf<L>), 512)},
         packed ? StatisticsKernel<kPackOf<L>, L> : StatisticsKernel<1, L>, data, targets, rows,
         statistics);
}

template <typename A>
struct Combination {
  const A* statistics;
  int64_t ranks, rows;
  const int32_t* targets;
  int64_t loss_begin, loss_rows;
  A* lse;
  StepState* state;
  A* log_probs;  // Null: the loss is wanted.
};

// One block, because of the sum of the loss. It reads little.
template <typename A>
__global__ void __launch_bounds__(1024) CombineKernel(Combination<A> args) {
  double loss = 0;
  for (int64_t t = threadIdx.x; t < args.rows; t += blockDim.x) {
    const auto of = [&](int64_t rank) { return args.statistics + (rank * args.rows + t) * 3; };
    A largest = of(0)[0], sum = 0, target_logit = 0;
    for (int64_t rank = 0; rank < args.ranks; ++rank) {
      largest = Max()(largest, of(rank)[0]);
      target_logit += of(rank)[2];
    }
    for (int64_t rank = 0; rank < args.ranks; ++rank) {
      sum += of(rank)[1] * std::exp(of(rank)[0] - largest);
    }
    const A lse = largest + std::log(sum);
    args.lse[t] = lse;
    if (args.log_probs != nullptr) {
      args.log_probs[t] = args.targets[t] >= 0 ? target_logit - lse : A(0);
      continue;
    }
    const bool mine = t >= args.loss_begin && t < args.loss_begin + args.loss_rows;
    if (mine && args.targets[t] >= 0) loss += double(lse) - double(target_logit);
  }
  if (args.log_probs != nullptr) return;
  loss = BlockSum(loss);
  if (threadIdx.x == 0) args.state->loss += args.state->loss_scale * loss;
}

template <typename A>
void Combine(Exec& exec, const Combination<A>& of) {
  if (of.rows > 0) Launch(exec, {1, RowThreads(of.rows, 1024)}, CombineKernel<A>, of);
}

// kGiven: the gradient by each log-probability is given. Otherwise it is that of the loss.
template <typename L, typename T, bool kGiven>
struct BackwardBody {
  using A = Accumulate<L>;
  const L* logits;
  Targets targets;
  const A* lse;
  const StepState* state;
  T* dlogits;
  const A* dlog_probs;

  template <int kCount>
  __device__ void operator()(int64_t t, int64_t v) const {
    if (v == 0) targets.Check(t);
    const int64_t at = t * targets.columns + v;
    Pack<T, kCount> out = {};
    if (targets.ids[t] >= 0) {
      const auto row = LoadPack<L, kCount>(logits + at);
      const A scale = kGiven ? -dlog_probs[t] : A(state->loss_scale);
      const A offset = lse[t];
      const int64_t target = targets.ids[t] - targets.first - v;
      for (int n = 0; n < kCount; ++n) {
        const A probability = ExpOf<L>(A(row.v[n]) - offset);
        const A dlogit = scale * (probability - (n == target ? A(1) : A(0)));
        out.v[n] = T(v + n < targets.held ? dlogit : A(0));
      }
    }
    StoreRow(dlogits + at, out);
  }
};

template <typename L, typename T, bool kGiven>
void BackwardBy(Exec& exec, const CrossEntropyBackwardArgs& args) {
  using A = Accumulate<L>;
  const int64_t columns = args.logits.shape.back();
  const BackwardBody<L, T, kGiven> body = {.logits = args.logits.as<L>(),
                                           .targets = TargetsOf(args.targets, args.slice, columns),
                                           .lse = args.lse.as<A>(),
                                           .state = args.state,
                                           .dlogits = args.dlogits.as<T>(),
                                           .dlog_probs = OrNull<const A>(args.dlog_probs)};
  ForEachPackOfRows<T>(exec, args.logits.shape.rows(), columns,
                       CanPack<T>(columns, body.logits, body.dlogits), body);
}

template <typename L, typename T>
void Backward(Exec& exec, const CrossEntropyBackwardArgs& args) {
  args.dlog_probs.data != nullptr ? BackwardBy<L, T, true>(exec, args)
                                  : BackwardBy<L, T, false>(exec, args);
}

// Whether one kernel gives the loss and the gradient. Jobs have no f64 on a GPU.
bool AtOnce(const CrossEntropyForwardArgs& args) {
  return args.dlogits.data != nullptr && args.dlogits.dtype == args.logits.dtype &&
         args.logits.dtype != DType::kF64;
}

template <typename L>
void Forward(Exec& exec, const CrossEntropyForwardArgs& args) {
  using A = Accumulate<L>;
  const int64_t rows = args.logits.shape.rows();
  const Targets targets = TargetsOf(args.targets, args.slice, args.logits.shape.back());
  A* const statistics = ScratchOf<A>(exec, rows * 3);
  if constexpr (!std::is_same_v<L, double>) {
    if (AtOnce(args)) {
      LossAndGradient<L>(exec, {.logits = args.logits.as<L>(),
                                .targets = targets,
                                .rows = rows,
                                .state = args.state,
                                .statistics = statistics,
                                .dlogits = args.dlogits.as<L>()});
    }
  }
  if (!AtOnce(args)) Statistics<L>(exec, args.logits, targets, statistics);
  Combine<A>(exec, {.statistics = statistics,
                    .ranks = 1,
                    .rows = rows,
                    .targets = args.targets.as<int32_t>(),
                    .loss_begin = 0,
                    .loss_rows = rows,
                    .lse = args.lse.as<A>(),
                    .state = args.state,
                    .log_probs = OrNull<A>(args.log_probs)});
}

}  // namespace

void CrossEntropyForward(Exec& exec, const CrossEntropyForwardArgs& args) {
  DispatchFloat(args.logits.dtype, [&](auto scalar) { Forward<decltype(scalar)>(exec, args); });
  if (args.dlogits.data == nullptr || AtOnce(args)) return;
  CrossEntropyBackward(exec, {.logits = args.logits,
                              .targets = args.targets,
                              .lse = args.lse,
                              .state = args.state,
                              .dlogits = args.dlogits,
                              .slice = args.slice});
}

void CrossEntropyStatistics(Exec& exec, const CrossEntropyStatisticsArgs& args) {
  DispatchFloat(args.logits.dtype, [&](auto scalar) {
    using L = decltype(scalar);
    Statistics<L>(exec, args.logits, TargetsOf(args.targets, args.slice, args.logits.shape.back()),
                  args.statistics.as<Accumulate<L>>());
  });
}

void CrossEntropyCombine(Exec& exec, const CrossEntropyCombineArgs& args) {
  DispatchFloat(args.statistics.dtype, [&](auto scalar) {
    using A = Accumulate<decltype(scalar)>;
    Combine<A>(exec, {.statistics = args.statistics.as<A>(),
                      .ranks = args.statistics.shape[0],
                      .rows = args.targets.elements(),
                      .targets = args.targets.as<int32_t>(),
                      .loss_begin = args.loss_begin,
                      .loss_rows = args.loss_rows,
                      .lse = args.lse.as<A>(),
                      .state = args.state,
                      .log_probs = OrNull<A>(args.log_probs)});
  });
}

void CrossEntropyBackward(Exec& exec, const CrossEntropyBackwardArgs& args) {
  DispatchFloat(args.logits.dtype, [&](auto scalar) {
    using L = decltype(scalar);
    args.dlogits.dtype == args.logits.dtype ? Backward<L, L>(exec, args)
                                            : Backward<float, bf16>(exec, args);
  });
}

}  // namespace trainyard::cuda
