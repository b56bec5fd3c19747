// All kernels are bound by memory. Logits are read once for the statistics, by one block per row
// that updates the largest logit and the sum. They are read once more for the gradient. Without
// slices of the vocabulary, forward is the case of one slice.

#include <limits>

#include "kernels/cuda/context.h"
#include "kernels/cuda/failure.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/rows.h"
#include "kernels/loss/cross_entropy.h"

namespace trainyard::cuda {
namespace {

struct Targets {
  const int32_t* ids;
  int64_t first, columns, vocab;  // The slice that logits have.
  int64_t held;                   // Columns before the padding.
  Failure fail = {};

  __device__ void Check(int64_t t) const {
    if (ids[t] >= -1 && ids[t] < vocab) return;
    fail("cross_entropy targets: target % at %, the vocabulary has % ids", ids[t], t, vocab);
  }
};

Targets TargetsOf(const ConstTensor& targets, const VocabSlice& slice, int64_t columns) {
  return {targets.as<int32_t>(), slice.first, columns, VocabOf(slice, columns),
          IdsOf(slice, columns)};
}

template <typename A, typename Tensor>
A* OrNull(const Tensor& tensor) {
  return tensor.data == nullptr ? nullptr : tensor.template as<std::remove_const_t<A>>();
}

// Number of loads that a thread has in flight.
template <typename A>
constexpr int kAheadOf = 16 / int(sizeof(A));

// Each thread's largest logit begins with a value that is less than any except minus infinity.
template <int kCount, typename A>
__global__ void __launch_bounds__(512)
    StatisticsKernel(const A* logits, Targets targets, int64_t rows, A* statistics) {
  constexpr int kAhead = kAheadOf<A>;
  constexpr A kLeast = std::numeric_limits<A>::lowest();
  const int64_t held = targets.held, stride = blockDim.x * kCount;
  const int64_t whole = held / kCount * kCount;  // Columns in packs without padding.
  for (int64_t t = blockIdx.x; t < rows; t += gridDim.x) {
    if (threadIdx.x == 0) targets.Check(t);
    const A* row = logits + t * targets.columns;
    A largest = kLeast, sum = 0;
    if (kCount > 1 && threadIdx.x < held - whole) {
      largest = row[whole + threadIdx.x];
      sum = 1;
    }
    for (int64_t v = threadIdx.x * kCount; v < whole; v += kAhead * stride) {
      Pack<A, kCount> packs[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        for (A& x : packs[k].v) x = -std::numeric_limits<A>::infinity();
        if (v + k * stride < whole) packs[k] = LoadPack<A, kCount>(row + v + k * stride);
      }
      A larger = largest;
#pragma unroll
      for (const auto& pack : packs) {
        for (const A x : pack.v) larger = Max()(larger, x);
      }
      sum *= std::exp(largest - larger);
#pragma unroll
      for (const auto& pack : packs) {
        for (const A x : pack.v) sum += std::exp(x - larger);
      }
      largest = larger;
    }
    const A of_all = BlockReduce(largest, Max(), kLeast);
    sum = BlockSum(sum * std::exp(largest - of_all));
    if (threadIdx.x == 0) {
      const int64_t target = targets.ids[t] - targets.first;
      A* const out = statistics + t * 3;
      out[0] = of_all;
      out[1] = sum;
      out[2] = target >= 0 && target < held ? row[target] : A(0);
    }
  }
}

template <typename A>
void Statistics(Exec& exec, const ConstTensor& logits, const Targets& targets, A* statistics) {
  const A* data = logits.as<A>();
  const int64_t rows = logits.shape.rows();
  const bool packed = CanPack<A>(targets.columns, data);
  const int64_t packs = packed ? targets.columns / kPackOf<A> : targets.columns;
  Launch(exec, {RowBlocks(rows), RowThreads(CeilDiv(packs, kAheadOf<A>), 512)},
         packed ? StatisticsKernel<kPackOf<A>, A> : StatisticsKernel<1, A>, data, targets, rows,
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
template <typename A, typename T, bool kGiven>
struct BackwardBody {
  const A* logits;
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
      const auto row = LoadPack<A, kCount>(logits + at);
      const A scale = kGiven ? -dlog_probs[t] : A(state->loss_scale);
      const A offset = lse[t];
      const int64_t target = targets.ids[t] - targets.first - v;
      for (int n = 0; n < kCount; ++n) {
        const A dlogit = scale * (std::exp(row.v[n] - offset) - (n == target ? A(1) : A(0)));
        out.v[n] = T(v + n < targets.held ? dlogit : A(0));
      }
    }
    StorePack(dlogits + at, out);
  }
};

template <typename A, typename T, bool kGiven>
void BackwardBy(Exec& exec, const CrossEntropyBackwardArgs& args) {
  const int64_t columns = args.logits.shape.back();
  const BackwardBody<A, T, kGiven> body = {.logits = args.logits.as<A>(),
                                           .targets = TargetsOf(args.targets, args.slice, columns),
                                           .lse = args.lse.as<A>(),
                                           .state = args.state,
                                           .dlogits = args.dlogits.as<T>(),
                                           .dlog_probs = OrNull<const A>(args.dlog_probs)};
  ForEachPackOfRows<T>(exec, args.logits.shape.rows(), columns,
                       CanPack<T>(columns, body.logits, body.dlogits), body);
}

template <typename A, typename T>
void Backward(Exec& exec, const CrossEntropyBackwardArgs& args) {
  args.dlog_probs.data != nullptr ? BackwardBy<A, T, true>(exec, args)
                                  : BackwardBy<A, T, false>(exec, args);
}

template <typename A>
void Forward(Exec& exec, const CrossEntropyForwardArgs& args) {
  const int64_t rows = args.logits.shape.rows();
  A* const statistics = ScratchOf<A>(exec, rows * 3);
  Statistics(exec, args.logits, TargetsOf(args.targets, args.slice, args.logits.shape.back()),
             statistics);
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

// Calls f with the scalar of the logits.
template <typename F>
void DispatchLogits(DType dtype, const F& f) {
  dtype == DType::kF64 ? f(double{}) : f(float{});
}

}  // namespace

void CrossEntropyForward(Exec& exec, const CrossEntropyForwardArgs& args) {
  DispatchLogits(args.logits.dtype, [&](auto scalar) { Forward<decltype(scalar)>(exec, args); });
}

void CrossEntropyStatistics(Exec& exec, const CrossEntropyStatisticsArgs& args) {
  DispatchLogits(args.logits.dtype, [&](auto scalar) {
    Statistics(exec, args.logits, TargetsOf(args.targets, args.slice, args.logits.shape.back()),
               args.statistics.as<decltype(scalar)>());
  });
}

void CrossEntropyCombine(Exec& exec, const CrossEntropyCombineArgs& args) {
  DispatchLogits(args.statistics.dtype, [&](auto scalar) {
    using A = decltype(scalar);
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
  if (args.logits.dtype == DType::kF64) {
    Backward<double, double>(exec, args);
  } else if (args.dlogits.dtype == DType::kF32) {
    Backward<float, float>(exec, args);
  } else {
    Backward<float, bf16>(exec, args);
  }
}

}  // namespace trainyard::cuda
