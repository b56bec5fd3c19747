// Proves the simulation of every schedule against the formulas of the papers: time lost, memory
// held.

#include "tests/train/pipeline/simulate.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "tests/train/pipeline/every_schedule.h"

namespace trainyard {
namespace {

// Whole numbers, so that sums are exact.
constexpr ActionTimes kTimes[] = {
    {.forward = 1, .backward_input = 1, .backward_weight = 1},
    {.forward = 2, .backward_input = 3, .backward_weight = 2},
    {.forward = 5, .backward_input = 4, .backward_weight = 1},
};

double Idle(const ScheduleOptions& o, const ActionTimes& t) {
  if (o.kind->name == "ZERO_BUBBLE") {
    return (o.stages - 1) * (t.forward + t.backward_input) -
           (std::min(o.stages, o.micro_batches) - 1) * t.backward_weight;
  }
  return (o.stages - 1) * (t.forward + t.backward_input + t.backward_weight);
}

int PeakInFlight(const ScheduleOptions& o, int stage) {
  const int stages_after = o.stages - 1 - stage;
  const absl::string_view kind = o.kind->name;
  if (kind == "GPIPE") return o.micro_batches;
  if (kind == "ONE_F_ONE_B") return std::min(o.micro_batches, stages_after + 1);
  if (kind == "ZERO_BUBBLE") return std::min(o.micro_batches, o.stages);
  EXPECT_EQ(kind, "INTERLEAVED_ONE_F_ONE_B") << "which has no formula here";
  return std::min(o.micro_batches * o.chunks, 2 * stages_after + (o.chunks - 1) * o.stages + 1);
}

TEST(Simulate, BubbleAndPeakOfEveryScheduleAreThePapers) {
  for (const ScheduleOptions& o : testing::EverySchedule(8, 4)) {
    if (absl::StartsWith(o.kind->name, "V_")) continue;  // v_schedules_test.cc.
    SCOPED_TRACE(testing::Describe(o));
    const PipelineSchedule schedule = *MakeSchedule(o);
    for (const ActionTimes& t : kTimes) {
      const auto simulation = Simulate(schedule, t);
      ASSERT_TRUE(simulation.ok()) << simulation.status();
      const double ideal =
          o.micro_batches * o.chunks * (t.forward + t.backward_input + t.backward_weight);
      ASSERT_EQ(simulation->makespan, ideal + Idle(o, t));
      for (int s = 0; s < o.stages; ++s) {
        ASSERT_DOUBLE_EQ(simulation->stages[size_t(s)].bubble, Idle(o, t) / ideal);
        ASSERT_EQ(simulation->stages[size_t(s)].peak_in_flight, PeakInFlight(o, s));
      }
    }
  }
}

TEST(Simulate, ZeroBubbleBeatsOneForwardOneBackwardInItsMemory) {
  for (int p = 2; p <= 8; ++p) {
    for (int m = 1; m <= 3 * p; ++m) {
      const auto plain =
          *MakeSchedule({.kind = FindSchedule("ONE_F_ONE_B"), .stages = p, .micro_batches = m});
      const auto split =
          *MakeSchedule({.kind = FindSchedule("ZERO_BUBBLE"), .stages = p, .micro_batches = m});
      const auto plain_run = *Simulate(plain, kTimes[0]), split_run = *Simulate(split, kTimes[0]);
      if (m >= p) {
        EXPECT_DOUBLE_EQ(split_run.stages[0].bubble, plain_run.stages[0].bubble / 3);
      }
      for (const Simulation::Stage& stage : split_run.stages) {
        EXPECT_EQ(stage.peak_in_flight, plain_run.stages[0].peak_in_flight);
      }
      // Beyond the formulas: weights may take longest, messages may take time.
      for (const double weight : {1, 2, 5}) {
        for (const double communication : {0, 1, 3}) {
          const ActionTimes times{.backward_weight = weight, .communication = communication};
          EXPECT_LE(Simulate(split, times)->makespan, Simulate(plain, times)->makespan)
              << p << " stages, " << m << " micro-batches, " << weight << ", " << communication;
        }
      }
    }
  }
}

// Two stages, one micro-batch: 0 |FF---.....BBB|, 1 |...FFBBB.....|, messages of one unit.
TEST(Simulate, MessagesTakeTimeButNoStages) {
  const PipelineSchedule schedule = *MakeSchedule({.stages = 2, .micro_batches = 1});
  const auto simulation = Simulate(
      schedule, {.forward = 2, .backward_input = 1, .backward_weight = 2, .communication = 1});
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  const auto& first = simulation->stages[0].actions;
  const auto& last = simulation->stages[1].actions;
  EXPECT_EQ(first[0].start, 0);
  EXPECT_EQ(first[0].end, 2);
  EXPECT_EQ(last[0].start, 3);
  EXPECT_EQ(last[0].end, 5);
  EXPECT_EQ(last[1].start, 5);
  EXPECT_EQ(last[1].end, 8);
  EXPECT_EQ(first[1].start, 9);
  EXPECT_EQ(first[1].end, 12);
  EXPECT_EQ(simulation->makespan, 12);
  EXPECT_EQ(simulation->stages[0].bubble, 7.0 / 5);
  EXPECT_EQ(simulation->stages[1].bubble, 7.0 / 5);
}

}  // namespace
}  // namespace trainyard
