// Proves that data-parallel ranks compute what one rank does: losses, and through weights and
// moments after two clipped AdamW steps every gradient, in f64.

#include <gmock/gmock.h>

#include "tests/train/step/run_job.h"
#include "train/data/text.h"

namespace trainyard {
namespace {

using testing::FreshDirectory;
using testing::LargestDifference;
using testing::Newest;
using testing::RunJob;
using testing::TinyJob;

constexpr double kTolerance = 1e-10;  // style.md 6.9, rung 4.

class DataParallel : public ::testing::TestWithParam<int> {};

TEST_P(DataParallel, TwoStepsEqualThoseOfOneRank) {
  const std::string one = FreshDirectory("parallel_one"), many = FreshDirectory("parallel_many");
  const auto want = RunJob(TinyJob(one))[0];
  const auto got = RunJob(TinyJob(many), {.ranks = GetParam()});
  ASSERT_TRUE(want.status.ok()) << want.status;
  for (const auto& rank : got) {
    ASSERT_TRUE(rank.status.ok()) << rank.status;
    ASSERT_EQ(rank.records.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(rank.records[i].loss, want.records[i].loss, kTolerance * want.records[i].loss);
      EXPECT_NEAR(rank.records[i].grad_norm, want.records[i].grad_norm,
                  kTolerance * want.records[i].grad_norm);
      EXPECT_EQ(rank.records[i].loss, got[0].records[i].loss) << "ranks disagree";
    }
  }
  EXPECT_LT(LargestDifference(Newest(one), Newest(many)), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Ranks, DataParallel, ::testing::Values(2, 4));

TEST(DataParallelValidation, LossIsThatOfOneRankAndMeasuredWhenDue) {
  JobConfig job = TinyJob(FreshDirectory("validation_one"));
  job.steps = 5;
  job.validation = ValidationConfig{.every_steps = 2, .batches = 2};
  const auto want = RunJob(job)[0];
  ASSERT_TRUE(want.status.ok()) << want.status;
  job.checkpoint->directory = FreshDirectory("validation_many");
  const auto got = RunJob(job, {.ranks = 2})[1];
  for (size_t i = 0; i < 5; ++i) {
    const bool due = i == 1 || i == 3 || i == 4;
    ASSERT_EQ(want.records[i].validation_loss.has_value(), due) << "step " << i + 1;
    if (!due) continue;
    EXPECT_NEAR(*got.records[i].validation_loss, *want.records[i].validation_loss, kTolerance);
    EXPECT_GT(*want.records[i].validation_loss, 1);
  }
  job.validation->batches = 1;
  job.checkpoint->directory = FreshDirectory("validation_half");
  const auto half = RunJob(job)[0];
  EXPECT_NE(*half.records[1].validation_loss, *want.records[1].validation_loss)
      << "the second batch is the first again";
}

TEST(DataParallelErrors, RankThatCannotPrepareEndsAllForItsReason) {
  JobConfig job = TinyJob(FreshDirectory("prepare"));
  job.data = TextData{.path = "/no/such/corpus.txt", .validation_fraction = 0};
  job.model.architecture->fields["vocab"] = 256;
  const auto runs = RunJob(job, {.ranks = 2});
  const std::string error(runs[0].status.message());
  EXPECT_THAT(error, ::testing::StartsWith("data.text.path: cannot open /no/such/corpus.txt"));
  for (const auto& run : runs) EXPECT_EQ(run.status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(runs[1].status.message(), "rank 0: " + error);
}

}  // namespace
}  // namespace trainyard
