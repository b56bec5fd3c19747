// The order in which samples of several datasets are mixed by weight: which dataset each sample of
// a run comes from, and how many samples of this dataset came before.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"

namespace trainyard {

// Let w[d] be the weight of dataset d divided by the sum of all weights, and c[d] the number of its
// samples among the first n samples. Then |c[d] - w[d] n| < 1 for every d and every n.
//
// Sample n + 1 comes from one of the datasets that lag behind by at least t, that is with w[d] (n +
// 1) - c[d] >= t = 1 / (2 D - 2) for D datasets: from the one that would be first to lag behind by
// 1 - t. Megatron takes the one that lags behind most, which does not keep the bound: for eight
// datasets, some prefixes miss their share by two samples.
// Source: Tijdeman 1980, "The chairman assignment problem", Discrete Mathematics 32, section 2.
//
// The order has no closed form, so it is computed from its beginning, without memory for it. A job
// that resumes after 1e8 samples of ten datasets does that once, in 3 s. Thread-safe.
class BlendOrder {
 public:
  // CHECKs that there are weights, and that all are finite and above 0.
  explicit BlendOrder(const std::vector<double>& weights);

  struct Choice {
    int dataset = 0;
    int64_t sample = 0;  // The number of samples of this dataset before this one.
    bool operator==(const Choice&) const = default;
  };
  // Returns the origin of a sample. Fast if it is near the last ones that were asked for, or
  // behind them.
  Choice At(int64_t sample) const;

 private:
  static constexpr int64_t kBlock = 4096;
  struct Block {
    int64_t number = -1;
    std::vector<Choice> choices;
  };
  // Sets the number of samples that a dataset has had.
  void Take(size_t dataset, int64_t count) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Restart() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int Next() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // The dataset of the next sample.

  std::vector<double> weights_;  // w
  double threshold_ = 0;         // t

  mutable Mutex mutex_;
  mutable int64_t next_ ABSL_GUARDED_BY(mutex_) = 0;             // n
  mutable std::vector<int64_t> counts_ ABSL_GUARDED_BY(mutex_);  // c
  // The prefixes in which each dataset lags behind by t, and by 1 - t, if none of its samples comes
  // before. Not whole numbers.
  mutable std::vector<double> releases_ ABSL_GUARDED_BY(mutex_);
  mutable std::vector<double> deadlines_ ABSL_GUARDED_BY(mutex_);
  mutable std::array<Block, 2> blocks_ ABSL_GUARDED_BY(mutex_);  // The last ones, by parity.
};

}  // namespace trainyard
