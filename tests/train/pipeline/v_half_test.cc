// Proves what V_HALF promises against 1F1B: (p + 2) / 2 micro-batches held in place of p, and no
// more of a bubble where forward, input gradient and weight gradient take equally long, for any
// number of micro-batches.

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/train/pipeline/every_schedule.h"
#include "tests/train/pipeline/toy_runner.h"
#include "train/pipeline/check.h"
#include "train/pipeline/simulate.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;

PipelineSchedule VHalf(int stages, int micro_batches) {
  return *MakeSchedule({.kind = FindSchedule("V_HALF"),
                        .stages = stages,
                        .chunks = 2,
                        .micro_batches = micro_batches});
}

// Of a stage, in times of one chunk's forward, backward of inputs or backward of weights.
double Idle(const Simulation& simulation) {
  return simulation.stages[0].bubble * (simulation.makespan / (1 + simulation.stages[0].bubble));
}

TEST(VHalf, PartsLieThereAndBack) {
  EXPECT_THAT(VHalf(3, 1).stage_of, ElementsAre(0, 1, 2, 2, 1, 0));
  EXPECT_EQ(VHalf(3, 1).PartOf(1, 0), 1);
  EXPECT_EQ(VHalf(3, 1).PartOf(1, 1), 4);
}

TEST(VHalf, RunsRightWithFewAndOddNumbersOfMicroBatches) {
  for (int p = 2; p <= 16; ++p) {
    for (int m = 1; m <= 64; ++m) {
      const PipelineSchedule schedule = VHalf(p, m);
      ASSERT_EQ(CheckSchedule(schedule), absl::OkStatus()) << p << " stages, " << m;
      ASSERT_EQ(testing::RunSchedule(schedule), testing::ExpectedGradients(schedule.options));
    }
  }
}

// Two chunks' activations are one micro-batch's of a stage. Slots are one chunk's more at most.
TEST(VHalf, HoldsHalfOfWhatOneForwardOneBackwardHolds) {
  for (int p = 2; p <= 16; ++p) {
    const int held = (p + 2) / 2;
    for (int m = 1; m <= 64; ++m) {
      const PipelineSchedule schedule = VHalf(p, m);
      const Simulation simulation = *Simulate(schedule, {});
      for (size_t s = 0; s < schedule.stages.size(); ++s) {
        const int peak = simulation.stages[s].peak_in_flight;
        ASSERT_LE(peak, 2 * held) << p << " stages, " << m << " micro-batches, stage " << s;
        if (m > p) {
          ASSERT_EQ(peak, 2 * held) << p << " stages, " << m << " micro-batches";
        }
        const std::vector<int>& slots = schedule.stages[s].slots;
        ASSERT_LE(slots[0] + slots[1], 2 * held + 1);
      }
    }
    const PipelineSchedule plain = *MakeSchedule({.stages = p, .micro_batches = 64});
    EXPECT_EQ(Simulate(plain, {})->stages[0].peak_in_flight, p);
  }
}

TEST(VHalf, HasNoLargerBubbleThanOneForwardOneBackward) {
  for (int p = 2; p <= 16; ++p) {
    for (int m = 1; m <= 64; ++m) {
      const double found = Idle(*Simulate(VHalf(p, m), {}));
      const double plain =
          2 * Idle(*Simulate(*MakeSchedule({.stages = p, .micro_batches = m}), {}));
      ASSERT_LE(found, plain) << p << " stages, " << m << " micro-batches";
      if (m < p) continue;
      // The formula of docs/parallelism.md.
      const double wanted = (7 * p - (p % 2 == 0 ? 6 : 9)) / 2.0;
      ASSERT_NEAR(found, wanted, 1e-9) << p << " stages, " << m << " micro-batches";
    }
  }
}

TEST(VHalf, IdlesLongerWithEveryMicroBatchWhereForwardAndBackwardDifferByMuch) {
  constexpr ActionTimes kTimes[] = {{.forward = 1, .backward_input = 1.5, .backward_weight = 1},
                                    {.forward = 2, .backward_input = 1, .backward_weight = 2},
                                    {.forward = 1, .backward_input = 2, .backward_weight = 1},
                                    {.forward = 3, .backward_input = 1, .backward_weight = 1}};
  for (const ActionTimes& t : kTimes) {
    const double difference = std::abs(t.forward - t.backward_input);
    const double added = std::max(0.0, 2 * (difference - t.backward_weight / 2));  // Two chunks.
    for (int p = 2; p <= 16; ++p) {
      const double few = Idle(*Simulate(VHalf(p, 2 * p), t));
      EXPECT_NEAR(Idle(*Simulate(VHalf(p, 4 * p), t)), few + 2 * p * added, 1e-9) << p;
    }
  }
}

// Parts 1 and 2 lie on one stage: two messages cross forward, and two backward.
TEST(VHalf, HandingOverWithinAStageTakesNoTime) {
  for (const double communication : {0, 3}) {
    const ActionTimes times{.communication = communication};
    EXPECT_EQ(Simulate(VHalf(2, 1), times)->makespan, 4 + 4 + 1 + 4 * communication);
  }
}

}  // namespace
}  // namespace trainyard
