#include "kernels/experts/router.h"

#include "kernels/cpu/experts/router_scores.h"
#include "kernels/cpu/kernels.h"

namespace trainyard::cpu {
namespace {

// The k largest of `value`, as indices in order of falling value. Indices must be offered in
// ascending order, so that of equal values the lower index comes first. A value that does not
// compare (NaN) stays at the place where it was inserted.
template <typename A>
struct Best {
  const A* value;
  int64_t k;
  int32_t* index;  // [k]
  int64_t count = 0;

  void Offer(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (count == k && !(value[i] > value[index[k - 1]])) continue;
      int64_t at = count < k ? count++ : k - 1;
      for (; at > 0 && value[i] > value[index[at - 1]]; --at) index[at] = index[at - 1];
      index[at] = int32_t(i);
    }
  }
};

// The sum of the two largest values of [begin, end), or the only value.
template <typename A>
A BestTwo(const A* value, int64_t begin, int64_t end) {
  int32_t index[2];
  Best<A> best{.value = value, .k = 2, .index = index};
  best.Offer(begin, end);
  return best.count == 2 ? value[index[0]] + value[index[1]] : value[index[0]];
}

// Writes the chosen experts to `chosen`. `scratch` must have room for two elements a group.
template <typename A>
void Choose(const A* value, int64_t experts, const RouterOptions& options, A* scratch,
            int32_t* chosen) {
  Best<A> best{.value = value, .k = options.top_k, .index = chosen};
  if (options.top_groups == options.groups) return best.Offer(0, experts);
  const int64_t size = experts / options.groups;
  A* group_value = scratch;
  int32_t* groups = reinterpret_cast<int32_t*>(scratch + options.groups);
  for (int64_t g = 0; g < options.groups; ++g) {
    group_value[g] = BestTwo(value, g * size, (g + 1) * size);
  }
  Best<A>{.value = group_value, .k = options.top_groups, .index = groups}.Offer(0, options.groups);
  std::sort(groups, groups + options.top_groups);
  for (int64_t i = 0; i < options.top_groups; ++i) {
    best.Offer(groups[i] * size, (groups[i] + 1) * size);
  }
}

// Returns scale, divided by the sum of the chosen scores if weights are normalised.
template <typename A>
A Factor(const RouterOptions& options, const A* s, const int32_t* chosen) {
  if (!options.normalize) return A(options.scale);
  A sum = A(kSmallestScoreSum);
  for (int64_t j = 0; j < options.top_k; ++j) sum += s[chosen[j]];
  return A(options.scale) / sum;
}

template <typename A>
void Forward(Exec& exec, const RouterForwardArgs& args) {
  const RouterOptions& options = args.options;
  const int64_t experts = args.logits.shape.back(), k = options.top_k;
  const A* logits = args.logits.as<A>();
  const A* bias = args.bias.data != nullptr ? args.bias.as<A>() : nullptr;
  int32_t* chosen_data = args.experts.as<int32_t>();
  A* weights_data = args.weights.as<A>();
  const auto token = [=](int64_t t, A* s) {
    A* value = s + experts;
    int32_t* chosen = chosen_data + t * k;
    RouterScores(options.scoring, logits + t * experts, experts, s);
    for (int64_t e = 0; e < experts; ++e) {
      value[e] = bias != nullptr ? s[e] + bias[e] : s[e];
    }
    Choose(value, experts, options, value + experts, chosen);
    const A factor = Factor(options, s, chosen);
    for (int64_t j = 0; j < k; ++j) weights_data[t * k + j] = factor * s[chosen[j]];
  };
  ForEachToken<A>(exec, args.logits.shape.rows(), 2 * (experts + options.groups), token);
}

template <typename A>
void RoundRobin(const RouterForwardArgs& args) {
  const int64_t experts = args.logits.shape.back(), k = args.options.top_k;
  int32_t* chosen = args.experts.as<int32_t>();
  for (int64_t slot = 0; slot < args.experts.elements(); ++slot) {
    chosen[slot] = int32_t(slot % experts);
  }
  std::fill_n(args.weights.as<A>(), args.weights.elements(), A(args.options.scale / double(k)));
}

template <typename A, typename T>
void Backward(Exec& exec, const RouterBackwardArgs& args) {
  const RouterOptions& options = args.options;
  const int64_t experts = args.logits.shape.back(), k = options.top_k;
  const A* logits = args.logits.as<A>();
  const A* dweights_data = args.dweights.as<A>();
  const int32_t* chosen_data = args.experts.as<int32_t>();
  T* dlogits = args.dlogits.as<T>();
  const bool softmax = options.scoring == RouterScoring::kSoftmax;
  const auto token = [=](int64_t t, A* s) {
    A* ds = s + experts;
    const A* dweights = dweights_data + t * k;
    const int32_t* chosen = chosen_data + t * k;
    RouterScores(options.scoring, logits + t * experts, experts, s);
    const A factor = Factor(options, s, chosen);
    A mean = 0;  // Mean of dweights, weighted by the normalised weights.
    if (options.normalize) {
      for (int64_t j = 0; j < k; ++j) mean += dweights[j] * s[chosen[j]];
      mean *= factor / A(options.scale);
    }
    std::fill_n(ds, experts, A(0));
    A along = 0;
    for (int64_t j = 0; j < k; ++j) {
      ds[chosen[j]] = factor * (dweights[j] - mean);
      along += ds[chosen[j]] * s[chosen[j]];
    }
    T* out = dlogits + t * experts;
    for (int64_t e = 0; e < experts; ++e) {
      out[e] = T(s[e] * (softmax ? ds[e] - along : ds[e] * (A(1) - s[e])));
    }
  };
  ForEachToken<A>(exec, args.logits.shape.rows(), 2 * experts, token);
}

}  // namespace

void RouterForward(Exec& exec, const RouterForwardArgs& args) {
  const bool exact = args.logits.dtype == DType::kF64;
  if (args.options.choice == RouterChoice::kRoundRobin) {
    exact ? RoundRobin<double>(args) : RoundRobin<float>(args);
  } else {
    exact ? Forward<double>(exec, args) : Forward<float>(exec, args);
  }
}

void RouterBackward(Exec& exec, const RouterBackwardArgs& args) {
  if (args.options.choice == RouterChoice::kRoundRobin) {
    std::fill_n(static_cast<std::byte*>(args.dlogits.data), args.dlogits.bytes(), std::byte{0});
  } else if (args.logits.dtype == DType::kF64) {
    Backward<double, double>(exec, args);
  } else if (args.dlogits.dtype == DType::kF32) {
    Backward<float, float>(exec, args);
  } else {
    Backward<float, bf16>(exec, args);
  }
}

}  // namespace trainyard::cpu
