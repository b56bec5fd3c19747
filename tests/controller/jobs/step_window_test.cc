// Proves that each step is counted once, however late, often or far apart its ranks tell of it.

#include "controller/jobs/step_window.h"

#include <gtest/gtest.h>

namespace trainyard::controller {
namespace {

JobStep Report(uint64_t epoch, uint64_t step) {
  JobStep report;
  report.epoch = epoch;
  report.step = step;
  report.seconds = 1;
  return report;
}

TEST(StepWindow, StepIsCompleteOnceAllRanksHaveToldIt) {
  StepWindow window;
  EXPECT_FALSE(window.Merge(Report(1, 1), 0, 2)->complete);
  EXPECT_FALSE(window.Merge(Report(1, 1), 0, 2)) << "told before";
  EXPECT_TRUE(window.Merge(Report(1, 1), 1, 2)->complete);
  EXPECT_FALSE(window.Merge(Report(1, 1), 0, 2));
  EXPECT_FALSE(window.Merge(Report(1, 1), 1, 2));
}

// After an outage one worker comes back long before another, with all its steps.
TEST(StepWindow, RanksMayBeThousandsOfStepsApart) {
  StepWindow window;
  for (uint64_t step = 1; step <= 5000; ++step)
    ASSERT_FALSE(window.Merge(Report(1, step), 0, 2)->complete);
  for (uint64_t step = 1; step <= 5000; ++step) {
    const auto merged = window.Merge(Report(1, step), 1, 2);
    ASSERT_TRUE(merged && merged->complete) << step;
  }
}

TEST(StepWindow, NewAttemptTellsEveryStepAnewAndTheOldOneNoMore) {
  StepWindow window;
  for (uint64_t step = 1; step <= 3; ++step) ASSERT_TRUE(window.Merge(Report(1, step), 0, 1));
  EXPECT_TRUE(window.Merge(Report(2, 2), 0, 1)->complete);
  EXPECT_FALSE(window.Merge(Report(1, 4), 0, 1));
  EXPECT_TRUE(window.Merge(Report(2, 3), 0, 1));
}

// Catches a restart after which a resent report counts again, or replaces a complete step by half a
// one.
TEST(StepWindow, GoesOnFromWhatIsStored) {
  StepWindow before;
  std::vector<JobStep> stored = {*before.Merge(Report(1, 7), 0, 2)};
  ASSERT_TRUE(before.Merge(Report(1, 8), 0, 2));
  stored.push_back(*before.Merge(Report(1, 8), 1, 2));
  StepWindow window(stored, 1);
  EXPECT_FALSE(window.Merge(Report(1, 6), 0, 2)) << "behind the newest, and not open";
  EXPECT_FALSE(window.Merge(Report(1, 7), 0, 2));
  EXPECT_TRUE(window.Merge(Report(1, 7), 1, 2)->complete);
  EXPECT_FALSE(window.Merge(Report(1, 8), 1, 2));
  EXPECT_TRUE(window.Merge(Report(1, 9), 1, 2));
}

// Catches a host's steps that are lost because others were told before it came back.
TEST(StepWindow, StepsThatWereSkippedMayStillBeTold) {
  StepWindow window;
  ASSERT_TRUE(window.Merge(Report(1, 1), 0, 1));
  EXPECT_EQ(window.complete_up_to(), 1);
  ASSERT_TRUE(window.Merge(Report(2, 5), 0, 1)) << "resumed from step 4";
  EXPECT_EQ(window.complete_up_to(), 1);
  EXPECT_TRUE(window.Merge(Report(1, 3), 0, 1)->complete);
  EXPECT_FALSE(window.Merge(Report(1, 3), 0, 1));
  EXPECT_FALSE(window.Merge(Report(1, 5), 0, 1)) << "run again by the later attempt";
  EXPECT_FALSE(window.Merge(Report(1, 6), 0, 1));
  EXPECT_TRUE(window.Merge(Report(1, 2), 0, 1));
  EXPECT_TRUE(window.Merge(Report(1, 4), 0, 1));
  EXPECT_EQ(window.complete_up_to(), 5);
}

TEST(StepWindow, ARecordOfTheDirectoryStandsForAllRanks) {
  StepWindow window;
  ASSERT_TRUE(window.Merge(Report(1, 1), 0, 2));
  ASSERT_TRUE(window.Merge(Report(1, 1), 1, 2));
  ASSERT_TRUE(window.Merge(Report(1, 2), 1, 2)) << "rank 0's host never came back";
  const auto whole = window.MergeWhole(Report(1, 2), 2);
  ASSERT_TRUE(whole);
  EXPECT_TRUE(whole->complete);
  EXPECT_TRUE(window.MergeWhole(Report(1, 3), 2)->complete);
  EXPECT_FALSE(window.MergeWhole(Report(1, 3), 2));
  EXPECT_FALSE(window.Merge(Report(1, 2), 0, 2)) << "told";
  EXPECT_EQ(window.complete_up_to(), 3);
}

// Attempt 2 ran steps 3 to 6, and nobody told of it; attempt 3 goes on from step 6.
TEST(StepWindow, StepsOfAnAttemptThatNobodyToldOfAreOpenAnew) {
  StepWindow window;
  for (const uint64_t step : {1, 2, 3, 4}) ASSERT_TRUE(window.Merge(Report(1, step), 0, 1));
  window.Resume(3, 2, 6);
  EXPECT_EQ(window.complete_up_to(), 2);
  EXPECT_TRUE(window.Merge(Report(3, 7), 0, 1));
  for (const uint64_t step : {3, 4, 5, 6}) {
    EXPECT_EQ(window.complete_up_to(), step - 1);
    EXPECT_TRUE(window.MergeWhole(Report(2, step), 1)->complete);
    EXPECT_FALSE(window.MergeWhole(Report(2, step), 1));
  }
  EXPECT_EQ(window.complete_up_to(), 7);
}

TEST(StepWindow, AResumeFromAStepThatIsKnownOpensTheLaterOnesAlone) {
  StepWindow window;
  for (const uint64_t step : {1, 2, 3, 4}) ASSERT_TRUE(window.Merge(Report(1, step), 0, 1));
  window.Resume(2, 2, 2);
  EXPECT_EQ(window.complete_up_to(), 2);
  EXPECT_FALSE(window.Merge(Report(1, 2), 0, 1));
  EXPECT_TRUE(window.Merge(Report(2, 3), 0, 1));
  window.Resume(1, 0, 0);
  EXPECT_EQ(window.complete_up_to(), 3) << "an attempt that is over says nothing any more";
}

// Its report by the other host comes late.
TEST(StepWindow, TheStepThatAResumeGoesOnFromStaysOpen) {
  StepWindow window;
  for (const uint64_t step : {1, 2, 3}) {
    for (const uint32_t rank : {0, 1}) ASSERT_TRUE(window.Merge(Report(1, step), rank, 2));
  }
  ASSERT_TRUE(window.Merge(Report(1, 4), 0, 2));
  window.Resume(2, 4, 4);
  EXPECT_EQ(window.complete_up_to(), 3);
  const auto late = window.Merge(Report(1, 4), 1, 2);
  ASSERT_TRUE(late);
  EXPECT_TRUE(late->complete);
  EXPECT_EQ(window.complete_up_to(), 4);
}

// A peer's worker may be heard before the one of rank 0.
TEST(StepWindow, ReportsThatCameBeforeTheirResumeAreKept) {
  StepWindow window;
  for (const uint64_t step : {1, 2, 3}) {
    for (const uint32_t rank : {0, 1}) ASSERT_TRUE(window.Merge(Report(1, step), rank, 2));
  }
  ASSERT_TRUE(window.Merge(Report(2, 3), 1, 2));  // Its report of step 2 was dropped.
  window.Resume(2, 1, 1);
  EXPECT_EQ(window.complete_up_to(), 1);
  EXPECT_FALSE(window.Merge(Report(2, 3), 1, 2)) << "told";
  EXPECT_TRUE(window.Merge(Report(2, 3), 0, 2)->complete);
  EXPECT_FALSE(window.Merge(Report(2, 2), 0, 2)->complete);
  EXPECT_TRUE(window.Merge(Report(2, 2), 1, 2)->complete);
}

// A step that is far away costs no memory without bound, nor what is told after it.
TEST(StepWindow, AResumeFromFarAwayKeepsTheNewestStepsOpen) {
  StepWindow window;
  ASSERT_TRUE(window.Merge(Report(1, 1), 0, 1));
  for (const uint64_t step : {uint64_t{1} << 40, uint64_t{1} << 41}) {
    window.Resume(step, 1, step);
    EXPECT_EQ(window.complete_up_to(), step - 65'536);
    EXPECT_FALSE(window.MergeWhole(Report(1, step - 65'536), 1));
    EXPECT_TRUE(window.MergeWhole(Report(1, step - 65'535), 1));
  }
}

}  // namespace
}  // namespace trainyard::controller
