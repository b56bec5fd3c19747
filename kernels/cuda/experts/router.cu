// A warp for each token. Bound by instructions: K rounds over E/32 values a lane, and five
// exchanges among lanes after each round. Logits are read once.
#include <cmath>

#include "kernels/cuda/experts/router_scores.h"
#include "kernels/cuda/kernels.h"
#include "kernels/experts/router.h"

namespace trainyard::cuda {
namespace {

// Values that take part in the choice must compare. NaN marks a value that was taken or does not
// take part.
template <typename A>
__device__ A Comparable(A value) {
  return value == value ? value : -A(INFINITY);
}

// Returns the index of the largest of value[0, count), of equal ones the lowest, in all lanes, and
// marks it as taken. Each lane reads and writes only its own values (ForLaneExperts).
template <typename A>
__device__ int TakeBest(A* value, int count) {
  A best = -A(INFINITY);
  int index = INT32_MAX;  // None.
  const auto offer = [&](A other, int other_index) {
    if (other > best || (other == best && other_index < index)) best = other, index = other_index;
  };
  ForLaneExperts(count, [&](int i) { offer(value[i], i); });
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    const A other = __shfl_xor_sync(kAllLanes, best, lanes);
    offer(other, __shfl_xor_sync(kAllLanes, index, lanes));
  }
  if (index % kWarp == int(threadIdx.x) % kWarp) value[index] = A(NAN);
  return index;
}

// Removes the experts of all but the best groups from the choice. `group_value` must have room for
// the groups.
template <typename A>
__device__ void KeepTopGroups(const RouterOptions& options, int experts, A* value, A* group_value) {
  const int groups = int(options.groups), size = experts / groups;
  __syncwarp();
  ForLaneExperts(groups, [&](int g) {
    A first = value[g * size], second = size > 1 ? -A(INFINITY) : A(0);
    for (int i = 1; i < size; ++i) {
      const A next = value[g * size + i];
      second = next > first ? first : next > second ? next : second;
      first = next > first ? next : first;
    }
    group_value[g] = Comparable(first + second);
  });
  for (int64_t i = 0; i < options.top_groups; ++i) TakeBest(group_value, groups);
  __syncwarp();
  ForLaneExperts(experts, [&](int e) {
    const A kept = group_value[e / size];
    if (kept == kept) value[e] = A(NAN);  // Its group was not taken.
  });
}

// Returns scale, divided by the sum of the chosen scores if weights are normalised.
template <typename A>
__device__ A Factor(const RouterOptions& options, const A* s, const int32_t* chosen) {
  if (!options.normalize) return A(options.scale);
  A sum = 0;
  for (int j = int(threadIdx.x) % kWarp; j < options.top_k; j += kWarp) sum += s[chosen[j]];
  return A(options.scale) / (A(kSmallestScoreSum) + WarpReduce(sum, Sum()));
}

template <typename A>
struct Forward {
  const A* logits;
  const A* bias;  // May be null.
  RouterOptions options;
  int64_t tokens;
  int experts;
  int32_t* chosen;
  A* weights;
};

// The shared memory of a warp, in elements: s [E], value [E], group_value [groups], chosen [K].
constexpr int64_t ForwardShared(int64_t experts, const RouterOptions& options) {
  return 2 * experts + options.groups + options.top_k;
}

template <typename A>
__global__ void __launch_bounds__(kTokenWarps* kWarp) ForwardKernel(Forward<A> forward) {
  const RouterOptions& options = forward.options;
  const int experts = forward.experts, k = int(options.top_k), lane = int(threadIdx.x) % kWarp;
  A* const s = WarpShared<A>(ForwardShared(experts, options));
  A* const value = s + experts;
  A* const group_value = value + experts;
  int32_t* const chosen = reinterpret_cast<int32_t*>(group_value + options.groups);
  for (int64_t t = FirstToken(); t < forward.tokens; t += TokenStride()) {
    RouterScores(options.scoring, forward.logits + t * experts, experts, s);
    ForLaneExperts(experts, [&](int e) {
      const A bias = forward.bias != nullptr ? forward.bias[e] : A(0);
      value[e] = Comparable(s[e] + bias);
    });
    if (options.top_groups < options.groups) KeepTopGroups(options, experts, value, group_value);
    for (int j = 0; j < k; ++j) {
      const int best = TakeBest(value, experts);
      if (lane == 0) chosen[j] = best;
    }
    __syncwarp();
    const A factor = Factor(options, s, chosen);
    for (int j = lane; j < k; j += kWarp) {
      forward.chosen[t * k + j] = chosen[j];
      forward.weights[t * k + j] = factor * s[chosen[j]];
    }
    __syncwarp();  // Before the next token's scores are written.
  }
}

template <typename A>
struct RoundRobin {
  int64_t experts;
  A weight;
  int32_t* chosen;
  A* weights;
  __device__ void operator()(int64_t slot) const {
    chosen[slot] = int32_t(slot % experts);
    weights[slot] = weight;
  }
};

template <typename A, typename T>
struct Backward {
  const A* logits;
  const int32_t* chosen;
  const A* dweights;
  RouterOptions options;
  int64_t tokens;
  int experts;
  T* dlogits;  // May be logits: a warp reads its row before it writes it.
};

// The shared memory of a warp: s [E], ds [E].
template <typename A, typename T>
__global__ void __launch_bounds__(kTokenWarps* kWarp) BackwardKernel(Backward<A, T> backward) {
  const RouterOptions& options = backward.options;
  const bool softmax = options.scoring == RouterScoring::kSoftmax;
  const int experts = backward.experts, k = int(options.top_k), lane = int(threadIdx.x) % kWarp;
  A* const s = WarpShared<A>(2 * experts);
  A* const ds = s + experts;
  for (int64_t t = FirstToken(); t < backward.tokens; t += TokenStride()) {
    const A* dweights = backward.dweights + t * k;
    const int32_t* chosen = backward.chosen + t * k;
    RouterScores(options.scoring, backward.logits + t * experts, experts, s);
    ForLaneExperts(experts, [&](int e) { ds[e] = 0; });
    __syncwarp();
    const A factor = Factor(options, s, chosen);
    A mean = 0;  // Mean of dweights, weighted by the normalised weights.
    if (options.normalize) {
      for (int j = lane; j < k; j += kWarp) mean += dweights[j] * s[chosen[j]];
      mean = WarpReduce(mean, Sum()) * (factor / A(options.scale));
    }
    A along = 0;
    for (int j = lane; j < k; j += kWarp) {
      const A d = factor * (dweights[j] - mean);
      ds[chosen[j]] = d;
      along += d * s[chosen[j]];
    }
    along = WarpReduce(along, Sum());
    __syncwarp();
    T* out = backward.dlogits + t * experts;
    ForLaneExperts(experts, [&](int e) {
      out[e] = T(s[e] * (softmax ? ds[e] - along : ds[e] * (A(1) - s[e])));
    });
    __syncwarp();  // Before the next token's scores are written.
  }
}

template <typename A>
void RunForward(Exec& exec, const RouterForwardArgs& args) {
  const int64_t tokens = args.logits.shape.rows(), experts = args.logits.shape.back();
  const Forward<A> forward = {.logits = args.logits.as<A>(),
                              .bias = args.bias.data != nullptr ? args.bias.as<A>() : nullptr,
                              .options = args.options,
                              .tokens = tokens,
                              .experts = int(experts),
                              .chosen = args.experts.as<int32_t>(),
                              .weights = args.weights.as<A>()};
  const int64_t shared = ForwardShared(experts, args.options) * int64_t(sizeof(A));
  Launch(exec, WarpForEachToken(tokens, shared), ForwardKernel<A>, forward);
}

template <typename A>
void RunRoundRobin(Exec& exec, const RouterForwardArgs& args) {
  const RoundRobin<A> body = {.experts = args.logits.shape.back(),
                              .weight = A(args.options.scale / double(args.options.top_k)),
                              .chosen = args.experts.as<int32_t>(),
                              .weights = args.weights.as<A>()};
  ForEach(exec, args.experts.elements(), body);
}

template <typename A, typename T>
void RunBackward(Exec& exec, const RouterBackwardArgs& args) {
  const int64_t tokens = args.logits.shape.rows(), experts = args.logits.shape.back();
  const Backward<A, T> backward = {.logits = args.logits.as<A>(),
                                   .chosen = args.experts.as<int32_t>(),
                                   .dweights = args.dweights.as<A>(),
                                   .options = args.options,
                                   .tokens = tokens,
                                   .experts = int(experts),
                                   .dlogits = args.dlogits.as<T>()};
  const int64_t shared = 2 * experts * int64_t(sizeof(A));
  Launch(exec, WarpForEachToken(tokens, shared), BackwardKernel<A, T>, backward);
}

}  // namespace

void RouterForward(Exec& exec, const RouterForwardArgs& args) {
  const bool exact = args.logits.dtype == DType::kF64;
  if (args.options.choice == RouterChoice::kRoundRobin) {
    exact ? RunRoundRobin<double>(exec, args) : RunRoundRobin<float>(exec, args);
  } else {
    exact ? RunForward<double>(exec, args) : RunForward<float>(exec, args);
  }
}

void RouterBackward(Exec& exec, const RouterBackwardArgs& args) {
  if (args.options.choice == RouterChoice::kRoundRobin) {
    ThrowIfError(cudaMemsetAsync(args.dlogits.data, 0, args.dlogits.bytes(), StreamOf(exec)),
                 "router_backward");
  } else if (args.logits.dtype == DType::kF64) {
    RunBackward<double, double>(exec, args);
  } else if (args.dlogits.dtype == DType::kF32) {
    RunBackward<float, float>(exec, args);
  } else {
    RunBackward<float, bf16>(exec, args);
  }
}

}  // namespace trainyard::cuda
