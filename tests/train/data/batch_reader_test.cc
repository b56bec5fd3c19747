// Proves that what a step trains on depends on the seed and the samples consumed alone: not on the
// number of ranks, the micro-batch size, or where a run was interrupted.

#include "train/data/batch_reader.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <vector>

#include "train/data/token_dataset.h"

namespace trainyard {
namespace {

constexpr int64_t kSequence = 3;

// Sample i is 10 i, 10 i + 1, ...
class CountingDataset final : public TokenDataset {
 public:
  explicit CountingDataset(int64_t samples) : TokenDataset(kSequence, 1000), samples_(samples) {}
  int64_t num_samples() const override { return samples_; }
  absl::Status ReadSample(int64_t index, const TokenSample& out) const override {
    for (size_t t = 0; t < out.tokens.size(); ++t) {
      out.tokens[t] = int32_t(10 * index + int64_t(t));
    }
    return absl::OkStatus();
  }

 private:
  const int64_t samples_;
};

// The samples of one step of all ranks, in the order (micro-batch, rank, row), each checked to be
// whole.
std::vector<int64_t> GlobalBatch(const Dataset& data, int64_t position, int64_t micro,
                                 int64_t ranks) {
  std::vector<int64_t> samples;
  const BatchShape shape{.global = 8, .micro = micro, .data_parallel = ranks, .data_rank = 0};
  const int64_t count = BatchReader(data, SampleOrder::kShuffled, 5, shape).micro_batches();
  for (int64_t m = 0; m < count; ++m) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      BatchShape mine = shape;
      mine.data_rank = rank;
      const BatchReader reader(data, SampleOrder::kShuffled, 5, mine);
      const auto batch = reader.Read(position, m);
      EXPECT_TRUE(batch.ok()) << batch.status();
      const auto& tokens = std::get<std::vector<int32_t>>(batch->at("tokens"));
      const auto& targets = std::get<std::vector<int32_t>>(batch->at("targets"));
      EXPECT_EQ(tokens.size(), size_t(micro * kSequence));
      EXPECT_EQ(targets.size(), tokens.size());
      for (size_t i = 0; i < tokens.size(); ++i) {
        EXPECT_EQ(tokens[i] % 10, int32_t(i % kSequence));
        EXPECT_EQ(targets[i], tokens[i] + 1);
      }
      for (int64_t b = 0; b < micro; ++b) samples.push_back(tokens[size_t(b * kSequence)] / 10);
    }
  }
  return samples;
}

TEST(BatchReader, GlobalBatchIsTheSameForAnyNumberOfRanks) {
  const CountingDataset data(21);
  for (int64_t step = 0; step < 10; ++step) {
    const std::vector<int64_t> one = GlobalBatch(data, 8 * step, 2, 1);
    ASSERT_EQ(one.size(), 8u);
    EXPECT_EQ(GlobalBatch(data, 8 * step, 2, 2), one);
    EXPECT_EQ(GlobalBatch(data, 8 * step, 2, 4), one);
    EXPECT_EQ(GlobalBatch(data, 8 * step, 1, 4), one);
    EXPECT_EQ(GlobalBatch(data, 8 * step, 8, 1), one);
  }
}

// Catches a reshuffle that forgets or repeats samples where epochs meet within a batch.
TEST(BatchReader, EverySampleIsReadOnceAnEpoch) {
  const CountingDataset data(21);
  std::vector<int64_t> order;
  for (int64_t step = 0; step < 21; ++step) {
    for (const int64_t sample : GlobalBatch(data, 8 * step, 2, 2)) order.push_back(sample);
  }
  for (int64_t epoch = 0; epoch < 8; ++epoch) {
    std::vector<int64_t> samples(order.begin() + 21 * epoch, order.begin() + 21 * (epoch + 1));
    std::sort(samples.begin(), samples.end());
    for (int64_t i = 0; i < 21; ++i) EXPECT_EQ(samples[size_t(i)], i) << epoch;
  }
  EXPECT_NE(std::vector<int64_t>(order.begin(), order.begin() + 21),
            std::vector<int64_t>(order.begin() + 21, order.begin() + 42));
}

TEST(SampleAt, SequentialOrderIsTheDataset) {
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(SampleAt(SampleOrder::kSequential, 9, 5, i), (SampleId{i % 5, i / 5}));
  }
}

TEST(SampleAt, CountsEpochsFromTheSamplesConsumed) {
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(SampleAt(SampleOrder::kShuffled, 9, 5, i).epoch, i / 5);
  }
}

TEST(SampleAt, SeedsDiffer) {
  int equal = 0;
  for (int64_t i = 0; i < 100; ++i) {
    equal +=
        SampleAt(SampleOrder::kShuffled, 1, 100, i) == SampleAt(SampleOrder::kShuffled, 2, 100, i);
  }
  EXPECT_LT(equal, 10);
}

TEST(BatchReaderDeathTest, RefusesAShapeThatDoesNotDivide) {
  const CountingDataset data(4);
  EXPECT_DEATH(BatchReader(data, SampleOrder::kShuffled, 0,
                           {.global = 8, .micro = 3, .data_parallel = 1, .data_rank = 0}),
               "8 over 3");
}

}  // namespace
}  // namespace trainyard
