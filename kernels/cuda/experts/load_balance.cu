// A warp for each token. Bound by reading the logits, once, and by the launches. Each set of tokens
// is counted by launches of its own: sets are few.
#include "kernels/cuda/context.h"
#include "kernels/cuda/experts/expert_counts.h"
#include "kernels/cuda/experts/router_scores.h"
#include "kernels/cuda/failure.h"
#include "kernels/cuda/kernels.h"
#include "kernels/experts/load_balance.h"

namespace trainyard::cuda {
namespace {

template <typename A>
struct Gate {
  const A* logits;
  const double* counts;
  SampleRows sets;
  RouterScoring scoring;
  double coefficient;
  int64_t tokens;
  int experts;
  Failure fail = {};

  __device__ double Factor(const StepState& state) const {
    return coefficient * double(experts) * state.loss_scale * state.counted_share;
  }
};

// The shared memory of a warp, in elements: s [E], and fractions [E], of which each lane has those
// of its own experts.
constexpr int64_t WarpElements(int64_t experts) { return 2 * experts; }

// Writes the fractions of token t's set, unless they are those of `set`, which becomes the set of
// t.
template <typename A>
__device__ void Fractions(const Gate<A>& gate, int64_t t, A* fraction, int64_t& set) {
  if (gate.sets.sample_of(t) == set) return;
  set = gate.sets.sample_of(t);
  const double* const counts = gate.counts + set * gate.experts;
  double sum = 0;
  ForLaneExperts(gate.experts, [&](int e) { sum += counts[e]; });
  sum = WarpReduce(sum, Sum());
  if (!(sum > 0)) {
    gate.fail("load_balance counts: none of % experts was chosen in set %", gate.experts, set);
  }
  ForLaneExperts(gate.experts, [&](int e) { fraction[e] = A(counts[e] / sum); });
}

template <typename A>
struct Scored {
  A sum;       // Divisor of the scores that makes probabilities.
  A expected;  // sum_e fraction[e] p[e]
};

// Computes this for token t, and writes the token's scores to `s`.
template <typename A>
__device__ Scored<A> Score(const Gate<A>& gate, int64_t t, const A* fraction, A* s) {
  RouterScores(gate.scoring, gate.logits + t * gate.experts, gate.experts, s);
  A sum = 0, expected = 0;
  ForLaneExperts(gate.experts, [&](int e) {
    sum += s[e];
    expected += fraction[e] * s[e];
  });
  sum = gate.scoring == RouterScoring::kSoftmax ? A(1)
                                                : A(kSmallestScoreSum) + WarpReduce(sum, Sum());
  return {sum, WarpReduce(expected, Sum()) / sum};
}

// terms[warp] = the sum of `expected` over the warp's tokens.
template <typename A>
__global__ void __launch_bounds__(kTokenWarps* kWarp) ForwardKernel(Gate<A> gate, double* terms) {
  A* const s = WarpShared<A>(WarpElements(gate.experts));
  A* const fraction = s + gate.experts;
  int64_t set = -1;
  double term = 0;
  for (int64_t t = FirstToken(); t < gate.tokens; t += TokenStride()) {
    Fractions(gate, t, fraction, set);
    term += double(Score(gate, t, fraction, s).expected);
  }
  if (threadIdx.x % kWarp == 0) terms[FirstToken()] = term;
}

template <typename A>
__global__ void __launch_bounds__(256)
    AddLossKernel(Gate<A> gate, const double* terms, int64_t count, StepState* state) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += terms[i];
  sum = BlockSum(sum);
  if (threadIdx.x == 0) state->auxiliary_loss += gate.Factor(*state) * sum;
}

// Four blocks of a multiprocessor: for five, ptxas spills a register.
template <typename A, typename T>
__global__ void __launch_bounds__(kTokenWarps* kWarp, 4)
    BackwardKernel(Gate<A> gate, const StepState* state, T* dlogits) {
  A* const s = WarpShared<A>(WarpElements(gate.experts));
  A* const fraction = s + gate.experts;
  const bool softmax = gate.scoring == RouterScoring::kSoftmax;
  const A factor = A(gate.Factor(*state));
  int64_t set = -1;
  for (int64_t t = FirstToken(); t < gate.tokens; t += TokenStride()) {
    Fractions(gate, t, fraction, set);
    const Scored<A> scored = Score(gate, t, fraction, s);
    T* out = dlogits + t * gate.experts;
    ForLaneExperts(gate.experts, [&](int e) {
      const A slope = softmax ? s[e] : s[e] / scored.sum * (A(1) - s[e]);
      out[e] = T(factor * slope * (fraction[e] - scored.expected));
    });
  }
}

template <typename A, typename Args>
Gate<A> GateOf(const Args& args) {
  return {.logits = args.logits.template as<A>(),
          .counts = args.counts.template as<double>(),
          .sets = args.sets,
          .scoring = args.scoring,
          .coefficient = args.coefficient,
          .tokens = args.logits.shape.rows(),
          .experts = int(args.logits.shape.back())};
}

template <typename A>
Grid GridOf(const Gate<A>& gate) {
  return WarpForEachToken(gate.tokens, WarpElements(gate.experts) * int64_t(sizeof(A)));
}

template <typename A>
void RunForward(Exec& exec, const LoadBalanceForwardArgs& args) {
  const auto gate = GateOf<A>(args);
  const Grid grid = GridOf(gate);
  const int64_t warps = grid.blocks * grid.threads / kWarp;
  double* terms = ScratchOf<double>(exec, warps);
  Launch(exec, grid, ForwardKernel<A>, gate, terms);
  Launch(exec, {1, 256}, AddLossKernel<A>, gate, terms, warps, args.state);
}

template <typename A, typename T>
void RunBackward(Exec& exec, const LoadBalanceBackwardArgs& args) {
  const auto gate = GateOf<A>(args);
  Launch(exec, GridOf(gate), BackwardKernel<A, T>, gate, args.state, args.dlogits.as<T>());
}

struct StoreCount {
  double* counts;
  __device__ void operator()(int expert, int32_t count) const { counts[expert] = count; }
};

}  // namespace

void LoadBalanceCounts(Exec& exec, const LoadBalanceCountsArgs& args) {
  const int64_t experts = args.counts.shape.back(), choices = args.experts.shape.back();
  const int64_t tokens = args.experts.shape.rows(), sets = args.counts.shape.rows();
  double* const counts = args.counts.as<double>();
  ThrowIfError(cudaMemsetAsync(counts, 0, args.counts.bytes(), StreamOf(exec)), "load_balance");
  for (int64_t set = 0; set < sets; ++set) {
    const int64_t begin = args.sets.begin_of(set, tokens),
                  end = args.sets.begin_of(set + 1, tokens);
    if (begin == end) continue;  // Other tensor ranks have the set's tokens.
    const ConstTensor chosen{args.experts.as<int32_t>() + begin * choices, DType::kI32,
                             Shape{end - begin, choices}};
    const TileCounts tiles = CountTiles(exec, chosen, experts, CountedFor::kLoadBalance);
    ScanTiles(exec, tiles, StoreCount{counts + set * experts});
  }
}

void LoadBalanceForward(Exec& exec, const LoadBalanceForwardArgs& args) {
  args.logits.dtype == DType::kF64 ? RunForward<double>(exec, args) : RunForward<float>(exec, args);
}

void LoadBalanceBackward(Exec& exec, const LoadBalanceBackwardArgs& args) {
  if (args.logits.dtype == DType::kF64) {
    RunBackward<double, double>(exec, args);
  } else if (args.dlogits.dtype == DType::kF32) {
    RunBackward<float, float>(exec, args);
  } else {
    RunBackward<float, bf16>(exec, args);
  }
}

}  // namespace trainyard::cuda
