#include "train/generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/violations.h"

namespace trainyard {
namespace {

// Sets the weights of tokens to 0 that the limits leave out.
void Limit(const Sampling& sampling, std::vector<double>& weights) {
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return weights[a] > weights[b]; });
  size_t kept = order.size();
  if (sampling.top_k > 0) kept = std::min(kept, size_t(sampling.top_k));
  if (sampling.top_p < 1) {
    double sum = 0;
    for (size_t i = 0; i < kept; ++i) sum += weights[order[i]];
    double with = 0;
    for (size_t i = 0; i < kept; ++i) {
      with += weights[order[i]];
      if (with >= sampling.top_p * sum) kept = i + 1;
    }
  }
  const double least = sampling.min_p * weights[order[0]];
  for (size_t i = 1; i < order.size(); ++i) {
    if (i >= kept || weights[order[i]] < least) weights[order[i]] = 0;
  }
}

}  // namespace

absl::Status Check(const Sampling& sampling) {
  Violations violations;
  violations.Check("temperature", sampling.temperature, {.least = 0, .most = kMaxTemperature});
  violations.Check("top-k", sampling.top_k, {.least = 0, .most = kMostTopK});
  violations.Check("top-p", sampling.top_p, {.least = 0, .most = 1});
  violations.Check("min-p", sampling.min_p, {.least = 0, .most = 1});
  return violations.ToStatus();
}

int64_t SampleToken(std::span<const float> logits, const Sampling& sampling, double u) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (sampling.temperature == 0) return largest - logits.begin();
  std::vector<double> weights;
  for (float logit : logits) {
    weights.push_back(std::exp((double(logit) - double(*largest)) / sampling.temperature));
  }
  if (sampling.top_k > 0 || sampling.top_p < 1 || sampling.min_p > 0) Limit(sampling, weights);
  double left = u * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return int64_t(i);
  }
  return largest - logits.begin();  // Rounding has left a small rest.
}

}  // namespace trainyard
