// Proves that prefetching changes when batches are read, and never which: any order of positions
// gives what reading directly does. Errors arrive with the batch that has them.

#include "train/step/prefetch.h"

#include <gmock/gmock.h>

namespace trainyard {
namespace {

// Sample i is i, i + 1, i + 2, ...; from `damaged_from` on, reading fails.
class Counting final : public Dataset {
 public:
  explicit Counting(int64_t damaged_from) : damaged_from_(damaged_from) {}
  int64_t num_samples() const override { return 1000; }
  int64_t sample_tokens() const override { return 5; }
  absl::Status Read(int64_t index, std::span<int32_t> out) const override {
    if (index >= damaged_from_) return absl::DataLossError("damaged");
    for (size_t i = 0; i < out.size(); ++i) out[i] = int32_t(index) + int32_t(i);
    return absl::OkStatus();
  }

 private:
  const int64_t damaged_from_;
};

constexpr SequencePart kWhole = {.rows = 4};

TEST(Prefetcher, GivesTheBatchOfEachPositionWhateverTheirOrder) {
  const Counting dataset(1000);
  const BatchReader reader(dataset, SampleOrder::kSequential, 1, {.global = 4, .micro = 2});
  Prefetcher prefetcher(reader, 2, kWhole, 4);
  for (const int64_t position : {0, 4, 8, 4, 100, 104, 0}) {
    const auto got = prefetcher.Take(position), want = ReadStepBatch(reader, 2, kWhole, position);
    ASSERT_TRUE(got.ok() && want.ok());
    ASSERT_EQ(got->size(), 2u);
    EXPECT_EQ(std::get<std::vector<int32_t>>(got->front().at("tokens")).front(), position);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ((*got)[i], (*want)[i]);
    }
  }
}

TEST(Prefetcher, ErrorBelongsToItsPosition) {
  const Counting dataset(6);
  const BatchReader reader(dataset, SampleOrder::kSequential, 1, {.global = 4, .micro = 4});
  Prefetcher prefetcher(reader, 4, kWhole, 4);
  EXPECT_TRUE(prefetcher.Take(0).ok());
  EXPECT_EQ(prefetcher.Take(4).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(prefetcher.Take(0).ok());
}

// Chunks 1 and 2 of the four that two ranks share.
TEST(RowsOf, AreThoseOfTheRanksTwoChunksInEachSequence) {
  const std::vector<int32_t> sequences = {0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17};
  EXPECT_EQ(RowsOf({.rows = 4, .ranks = 2, .rank = 1}, sequences),
            (std::vector<int32_t>{2, 3, 4, 5, 12, 13, 14, 15}));
}

}  // namespace
}  // namespace trainyard
