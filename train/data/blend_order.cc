#include "train/data/blend_order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/check.h"

namespace trainyard {

BlendOrder::BlendOrder(const std::vector<double>& weights) : weights_(weights) {
  CHECK(!weights.empty()) << "a blend of no dataset";
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights_) {
    CHECK(std::isfinite(weight) && weight > 0) << weight;
    weight /= sum;
  }
  // Rounding must not hide a dataset that lags behind by exactly the threshold.
  constexpr double kRounding = 1e-6;
  if (weights.size() > 1) threshold_ = 1 / (2 * double(weights.size()) - 2) - kRounding;
  for (auto* of_datasets : {&releases_, &deadlines_}) of_datasets->resize(weights.size());
  counts_.resize(weights.size());
  Restart();
}

void BlendOrder::Take(size_t dataset, int64_t count) const {
  counts_[dataset] = count;
  releases_[dataset] = (double(count) + threshold_) / weights_[dataset];
  deadlines_[dataset] = (double(count) + 1 - threshold_) / weights_[dataset];
}

void BlendOrder::Restart() const {
  for (size_t d = 0; d < weights_.size(); ++d) Take(d, 0);
  next_ = 0;
}

int BlendOrder::Next() const {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const double n = double(++next_);
  double soonest = kNever;
  size_t chosen = 0;
  for (size_t d = 0; d < weights_.size(); ++d) {
    const double deadline = releases_[d] <= n ? deadlines_[d] : kNever;
    chosen = deadline < soonest ? d : chosen;
    soonest = deadline < soonest ? deadline : soonest;
  }
  Take(chosen, counts_[chosen] + 1);
  return int(chosen);
}

BlendOrder::Choice BlendOrder::At(int64_t sample) const {
  CHECK(sample >= 0) << sample;
  const int64_t number = sample / kBlock;
  const MutexLock lock(mutex_);
  Block& block = blocks_[size_t(number % 2)];
  if (block.number != number) {
    if (next_ > number * kBlock) Restart();
    while (next_ < number * kBlock) Next();
    block.number = number;
    block.choices.clear();
    while (next_ < (number + 1) * kBlock) {
      const int dataset = Next();
      block.choices.push_back({dataset, counts_[size_t(dataset)] - 1});
    }
  }
  return block.choices[size_t(sample % kBlock)];
}

}  // namespace trainyard
