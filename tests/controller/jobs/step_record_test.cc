// Proves that ranks' reports of a step merge to the slowest rank's seconds, once each.

#include "controller/jobs/step_record.h"

#include <gtest/gtest.h>

namespace trainyard::controller {
namespace {

JobStep Report(uint64_t epoch, double seconds, double loss) {
  JobStep r;
  r.step = 7;
  r.epoch = epoch;
  r.seconds = seconds;
  r.phases.forward = seconds;
  r.loss = loss;
  r.load_balancing_loss = loss / 2;
  r.mfu = loss / 10;
  return r;
}

TEST(MergeStep, TakesSecondsOfTheSlowestAndLossAndMfuOfRankZero) {
  JobStep step;
  EXPECT_TRUE(MergeStep(step, Report(1, 2.0, 9), 1, 3));
  EXPECT_TRUE(MergeStep(step, Report(1, 1.0, 3), 0, 3));
  EXPECT_FALSE(step.complete);
  EXPECT_TRUE(MergeStep(step, Report(1, 1.5, 8), 2, 3));
  EXPECT_TRUE(step.complete);
  EXPECT_EQ(step.seconds, 2.0);
  EXPECT_EQ(step.phases.forward, 2.0);
  EXPECT_EQ(step.loss, 3);
  EXPECT_EQ(step.load_balancing_loss, 1.5);
  EXPECT_EQ(step.mfu, 0.3) << "which stands in the log";
}

// Bug it must catch: a later report of another rank, which has no texts, that removes them.
TEST(MergeStep, TakesWhatTheModelWroteFromRankZero) {
  JobStep step, first = Report(1, 1.0, 3);
  first.generated = {{"a", "b"}};
  EXPECT_TRUE(MergeStep(step, Report(1, 2.0, 9), 1, 3));
  EXPECT_TRUE(MergeStep(step, first, 0, 3));
  EXPECT_TRUE(MergeStep(step, Report(1, 1.5, 8), 2, 3));
  EXPECT_EQ(step.generated, first.generated);
}

// Thousands of steps may wait for a rank whose worker is away.
TEST(MergeStep, KeepsNoCollectives) {
  JobStep step, report = Report(1, 1.0, 3);
  report.collectives = {{"all_gather", "data", 3, 4096, 0.5}};
  EXPECT_TRUE(MergeStep(step, report, 0, 2));
  EXPECT_TRUE(step.collectives.empty());
}

TEST(MergeStep, TakesPhasesOfTheRankThatWaitedLeast) {
  JobStep waited = Report(1, 2.0, 9), slowest = Report(1, 2.0, 9), step;
  waited.phases = {0, 0.5, 0.5, 1.0};
  slowest.phases = {0, 1.0, 0.9, 0.1};
  EXPECT_TRUE(MergeStep(step, waited, 0, 2));
  EXPECT_TRUE(MergeStep(step, slowest, 1, 2));
  for (const auto& [name, phase] : kPhases) {
    EXPECT_EQ(step.phases.*phase, slowest.phases.*phase) << name;
  }
}

TEST(MergeStep, RepeatedReportChangesNothing) {
  JobStep step;
  EXPECT_TRUE(MergeStep(step, Report(1, 2.0, 9), 1, 2));
  EXPECT_FALSE(MergeStep(step, Report(1, 5.0, 1), 1, 2));
  EXPECT_EQ(step.seconds, 2.0);
  EXPECT_FALSE(step.complete);
}

TEST(MergeStep, LaterEpochReplacesAndEarlierIsRefused) {
  JobStep step;
  MergeStep(step, Report(1, 5.0, 9), 0, 2);
  EXPECT_TRUE(MergeStep(step, Report(2, 1.0, 4), 0, 2));
  EXPECT_EQ(step.seconds, 1.0);
  EXPECT_FALSE(MergeStep(step, Report(1, 5.0, 9), 1, 2));
  EXPECT_FALSE(step.complete);
}

TEST(MergeStep, SecondTryOfASkippedStepReplacesIt) {
  JobStep step, skipped = Report(1, 5.0, 9);
  skipped.skipped = true;
  EXPECT_TRUE(MergeStep(step, skipped, 0, 2));
  EXPECT_TRUE(MergeStep(step, Report(1, 1.0, 4), 0, 2));
  EXPECT_FALSE(MergeStep(step, skipped, 1, 2)) << "a late word of the first try";
  EXPECT_TRUE(MergeStep(step, Report(1, 1.2, 4), 1, 2));
  EXPECT_TRUE(step.complete);
  EXPECT_FALSE(step.skipped);
  EXPECT_EQ(step.seconds, 1.2);
}

// Bug it must catch: power counted twice, or a slow clock hidden behind its fast neighbours.
TEST(MergeStep, OfGpusTakesTheWorstAndTheSumOfPower) {
  JobStep step;
  JobStep a = Report(1, 1.0, 3), b = a;
  a.gpu = {.utilization = 0.97,
           .power_watts = 612.5,
           .sm_clock_hertz = 1.755e9,
           .temperature_celsius = 61,
           .throttle_reasons = {"sw_power_cap"}};
  b.gpu = {.utilization = 0.99,
           .power_watts = 300.5,
           .sm_clock_hertz = 1.2e9,
           .temperature_celsius = 88,
           .throttle_reasons = {"sw_power_cap", "hw_slowdown"}};
  EXPECT_TRUE(MergeStep(step, a, 0, 3));
  EXPECT_EQ(step.gpu.power_watts, 612.5);
  EXPECT_FALSE(MergeStep(step, a, 0, 3));  // Told twice.
  EXPECT_TRUE(MergeStep(step, b, 1, 3));
  EXPECT_TRUE(MergeStep(step, Report(1, 1.0, 3), 2, 3));  // Its GPU could not be read.
  EXPECT_EQ(step.gpu.utilization, 0.97);
  EXPECT_EQ(step.gpu.power_watts, 913.0);
  EXPECT_EQ(step.gpu.sm_clock_hertz, 1.2e9);
  EXPECT_EQ(step.gpu.temperature_celsius, 88);
  EXPECT_EQ(step.gpu.throttle_reasons, (std::vector<std::string>{"hw_slowdown", "sw_power_cap"}));
  EXPECT_TRUE(MergeStep(step, Report(2, 1.0, 3), 0, 3));  // On CPU ranks.
  EXPECT_FALSE(step.gpu.power_watts.has_value());
}

}  // namespace
}  // namespace trainyard::controller
