// Proves that prefetching changes when batches are read, and never which: any order of positions
// gives what reading directly does. Errors arrive with the batch that has them.

#include "train/step/prefetch.h"

#include <gmock/gmock.h>

#include "train/data/token_dataset.h"

namespace trainyard {
namespace {

// Sample i is i, i + 1, i + 2, ...; from `damaged_from` on, reading fails.
class Counting final : public TokenDataset {
 public:
  explicit Counting(int64_t damaged_from) : TokenDataset(4, 2000), damaged_from_(damaged_from) {}
  int64_t num_samples() const override { return 1000; }
  absl::Status ReadSample(int64_t index, const TokenSample& out) const override {
    if (index >= damaged_from_) return absl::DataLossError("damaged");
    for (size_t i = 0; i < out.tokens.size(); ++i) out.tokens[i] = int32_t(index) + int32_t(i);
    return absl::OkStatus();
  }

 private:
  const int64_t damaged_from_;
};

constexpr SequencePart kWhole = {.rows = 4};

TEST(Prefetcher, GivesTheBatchOfEachPositionWhateverTheirOrder) {
  const Counting dataset(1000);
  const BatchReader reader(dataset, SampleOrder::kSequential, 1, {.global = 4, .micro = 2});
  Prefetcher prefetcher(reader, kWhole, 4);
  for (const int64_t position : {0, 4, 8, 4, 100, 104, 0}) {
    const auto got = prefetcher.Take(position), want = ReadStepBatch(reader, kWhole, position);
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
  Prefetcher prefetcher(reader, kWhole, 4);
  EXPECT_TRUE(prefetcher.Take(0).ok());
  EXPECT_EQ(prefetcher.Take(4).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(prefetcher.Take(0).ok());
}

// Chunks 1 and 2 of the four that two ranks share.
TEST(RowsOf, AreThoseOfTheRanksTwoChunksInEachSequence) {
  const std::vector<int32_t> sequences = {0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17};
  const SequencePart part{.rows = 4, .ranks = 2, .rank = 1};
  EXPECT_EQ(RowsOf(part, 1, sequences), InputData(std::vector{2, 3, 4, 5, 12, 13, 14, 15}));
  // One sequence of rows of two elements.
  const std::vector<float> wide(sequences.begin(), sequences.end());
  EXPECT_EQ(RowsOf(part, 2, wide), InputData(std::vector<float>{4, 5, 6, 7, 10, 11, 12, 13}));
}

// Of each sample a token input, whose rows are divided, and one by sample, which is not.
class Mixed final : public Dataset {
 public:
  int64_t num_samples() const override { return 8; }
  const std::vector<InputSpec>& inputs() const override { return inputs_; }
  absl::Status Read(const SampleId& sample, std::span<InputData> out) const override {
    for (int i = 0; i < 8; ++i) {
      std::get<std::vector<float>>(out[0]).push_back(float(10 * sample.index + i));
    }
    std::get<std::vector<int32_t>>(out[1]).push_back(int32_t(sample.index));
    return absl::OkStatus();
  }

 private:
  const std::vector<InputSpec> inputs_ = {
      {.name = "rows", .kind = InputSpec::Kind::kReal, .shape = {2}},
      {.name = "sample", .unit = InputSpec::Unit::kSample}};
};

TEST(ReadStepBatch, DividesWhatIsByTokenAlone) {
  const Mixed dataset;
  const BatchReader reader(dataset, SampleOrder::kSequential, 1, {.global = 4, .micro = 2});
  const auto batch = ReadStepBatch(reader, {.rows = 2, .ranks = 2, .rank = 1}, 0);
  ASSERT_TRUE(batch.ok()) << batch.status();
  ASSERT_EQ(batch->size(), 2u);
  EXPECT_EQ(batch->at(1).at("sample"), InputData(std::vector<int32_t>{2, 3}));
  EXPECT_EQ(batch->at(1).at("rows"), InputData(std::vector<float>{22, 23, 24, 25, 32, 33, 34, 35}));
}

}  // namespace
}  // namespace trainyard
