// Proves what the V-shaped schedules promise against 1F1B, which holds p micro-batches: V_HALF
// holds (p + 2) / 2, V_MIN (p + 4) / 3 and V_ZB p. The bubble of all three is no larger where
// forward, input gradient and weight gradient take equally long, for any number of micro-batches.
// That of V_ZB is the smallest that the pipeline's filling allows.

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/train/pipeline/check.h"
#include "tests/train/pipeline/every_schedule.h"
#include "tests/train/pipeline/simulate.h"
#include "tests/train/pipeline/toy_runner.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::Range;
using ::testing::Values;

// The formulas of docs/parallelism.md. Times are those of one chunk.
struct Promise {
  const char* schedule;
  int (*held)(int stages);        // Most micro-batches, of two chunks each, on any stage.
  int (*all_hold)(int stages);    // With so many micro-batches, all stages hold as many; 0: never.
  int more_slots;                 // Of both chunks, beyond those that are held at once.
  int (*twice_idle)(int stages);  // Where all actions take one unit, and m >= p.
  double (*added)(const ActionTimes&);  // To the idle time, by each micro-batch, where p > 2.
};

constexpr Promise kVHalf = {
    .schedule = "V_HALF",
    .held = [](int p) { return (p + 2) / 2; },
    .all_hold = [](int p) { return p + 1; },
    .more_slots = 1,
    .twice_idle = [](int p) { return 7 * p - (p % 2 == 0 ? 6 : 9); },
    .added =
        [](const ActionTimes& t) {
          const double difference = std::abs(t.forward - t.backward_input);
          return std::max(0.0, 2 * difference - t.backward_weight);
        },
};
constexpr Promise kVMin = {
    .schedule = "V_MIN",
    .held = [](int p) { return (p + 4) / 3; },
    .all_hold = [](int) { return 0; },
    .more_slots = 1,
    .twice_idle = [](int p) { return 8 * p - (p % 3 == 0 ? 6 : 10); },
    .added =
        [](const ActionTimes& t) {
          const double work = t.forward + t.backward_input + t.backward_weight;
          return 2 * std::max(0.0, 3 * std::max(t.forward, t.backward_input) - work);
        },
};

constexpr Promise kVZeroBubble = {
    .schedule = "V_ZB",
    .held = [](int p) { return p; },
    .all_hold = [](int p) { return 2 * p - 1; },
    .more_slots = 0,
    .twice_idle = [](int p) { return 2 * (p - 1); },
    .added = [](const ActionTimes&) { return 0.0; },
};

// By promise and number of stages.
class VSchedules : public ::testing::TestWithParam<std::tuple<Promise, int>> {
 protected:
  const Promise& promise() const { return std::get<0>(GetParam()); }
  int stages() const { return std::get<1>(GetParam()); }
  PipelineSchedule Schedule(int micro_batches) const {
    return *MakeSchedule({.kind = FindSchedule(promise().schedule),
                          .stages = stages(),
                          .chunks = 2,
                          .micro_batches = micro_batches});
  }
  PipelineSchedule Plain(int micro_batches) const {
    return *MakeSchedule({.stages = stages(), .micro_batches = micro_batches});
  }
};

// Of a stage, in times of one chunk's forward, backward of inputs or backward of weights.
double Idle(const Simulation& simulation) {
  return simulation.stages[0].bubble * (simulation.makespan / (1 + simulation.stages[0].bubble));
}

TEST_P(VSchedules, PartsLieThereAndBack) {
  const PipelineSchedule schedule = Schedule(1);
  for (int s = 0; s < stages(); ++s) {
    EXPECT_EQ(schedule.PartOf(s, 0), s);
    EXPECT_EQ(schedule.PartOf(s, 1), 2 * stages() - 1 - s);
  }
}

TEST_P(VSchedules, RunsRightWithFewAndOddNumbersOfMicroBatches) {
  for (int m = 1; m <= 64; ++m) {
    const PipelineSchedule schedule = Schedule(m);
    ASSERT_EQ(CheckSchedule(schedule), absl::OkStatus()) << m << " micro-batches";
    ASSERT_EQ(testing::RunSchedule(schedule), testing::ExpectedGradients(schedule.options));
  }
}

// Two chunks' activations are one micro-batch's of a stage.
TEST_P(VSchedules, HoldsAPartOfWhatOneForwardOneBackwardHolds) {
  const int held = promise().held(stages()), all_hold = promise().all_hold(stages());
  for (int m = 1; m <= 64; ++m) {
    const PipelineSchedule schedule = Schedule(m);
    const Simulation simulation = *Simulate(schedule, {});
    int most = 0;
    for (size_t s = 0; s < schedule.stages.size(); ++s) {
      const int peak = simulation.stages[s].peak_in_flight;
      most = std::max(most, peak);
      ASSERT_LE(peak, 2 * held) << m << " micro-batches, stage " << s;
      if (all_hold > 0 && m >= all_hold) {
        ASSERT_EQ(peak, 2 * held) << m << " micro-batches, stage " << s;
      }
      const std::vector<int>& slots = schedule.stages[s].slots;
      ASSERT_LE(slots[0] + slots[1], 2 * held + promise().more_slots);
    }
    if (m > stages()) {
      ASSERT_EQ(most, 2 * held) << m << " micro-batches";
    }
  }
  EXPECT_EQ(Simulate(Plain(64), {})->stages[0].peak_in_flight, stages());
}

TEST_P(VSchedules, HasNoLargerBubbleThanOneForwardOneBackward) {
  for (int m = 1; m <= 64; ++m) {
    const double found = Idle(*Simulate(Schedule(m), {}));
    ASSERT_LE(found, 2 * Idle(*Simulate(Plain(m), {}))) << m << " micro-batches";
    if (m < stages()) continue;
    ASSERT_NEAR(found, promise().twice_idle(stages()) / 2.0, 1e-9) << m << " micro-batches";
  }
}

TEST_P(VSchedules, IdlesLongerWithEveryMicroBatchWhereTimesDiffer) {
  constexpr ActionTimes kTimes[] = {{.forward = 1, .backward_input = 1.5, .backward_weight = 1},
                                    {.forward = 2, .backward_input = 1, .backward_weight = 2},
                                    {.forward = 1, .backward_input = 2, .backward_weight = 1},
                                    {.forward = 3, .backward_input = 1, .backward_weight = 1},
                                    {.forward = 2, .backward_input = 2, .backward_weight = 1},
                                    {.forward = 1, .backward_input = 2, .backward_weight = 3}};
  for (const ActionTimes& times : kTimes) {
    const int few = 2 * stages();
    const double added =
        Idle(*Simulate(Schedule(2 * few), times)) - Idle(*Simulate(Schedule(few), times));
    const double wanted = few * promise().added(times);
    if (stages() > 2) {
      EXPECT_NEAR(added, wanted, 1e-9);
    } else {
      EXPECT_LE(added, wanted + 1e-9);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(VHalf, VSchedules, ::testing::Combine(Values(kVHalf), Range(2, 17)));
INSTANTIATE_TEST_SUITE_P(VMin, VSchedules, ::testing::Combine(Values(kVMin), Range(2, 17)));
INSTANTIATE_TEST_SUITE_P(VZeroBubble, VSchedules,
                         ::testing::Combine(Values(kVZeroBubble), Range(2, 17)));

// Stage p - 1 must wait for p - 1 forwards before its first action, so where all actions take one
// unit no schedule of this V can idle less. Where they do not, idle time still has a bound that
// does not depend on the number of micro-batches.
TEST(VZeroBubbleTest, IdlesOnlyWhileThePipelineFillsWhateverTheTimes) {
  for (const int p : {2, 3, 4, 8, 16}) {
    for (const int m : {p, p + 1, 2 * p, 5 * p}) {
      const PipelineSchedule schedule = *MakeSchedule(
          {.kind = FindSchedule("V_ZB"), .stages = p, .chunks = 2, .micro_batches = m});
      for (const double f : {1.0, 1.5, 2.0, 3.0}) {
        for (const double b : {1.0, 1.5, 2.0, 3.0}) {
          for (const double w : {1.0, 1.5, 2.0, 3.0}) {
            const ActionTimes times{.forward = f, .backward_input = b, .backward_weight = w};
            const double most = (p - 1) * std::max({2 * f - w, 2 * b - w, 2 * f - b, b});
            ASSERT_LE(Idle(*Simulate(schedule, times)), most + 1e-9)
                << p << " stages, " << m << " micro-batches, " << f << " " << b << " " << w;
          }
        }
      }
    }
  }
}

// Parts 1 and 2 lie on one stage: two messages cross forward, and two backward.
TEST(VSchedulesOfTwoStages, HandingOverWithinAStageTakesNoTime) {
  for (const char* name : {"V_HALF", "V_MIN", "V_ZB"}) {
    const PipelineSchedule schedule =
        *MakeSchedule({.kind = FindSchedule(name), .stages = 2, .chunks = 2, .micro_batches = 1});
    EXPECT_THAT(schedule.stage_of, ElementsAre(0, 1, 1, 0));
    for (const double communication : {0, 3}) {
      const ActionTimes times{.communication = communication};
      EXPECT_EQ(Simulate(schedule, times)->makespan, 4 + 4 + 1 + 4 * communication);
    }
  }
}

}  // namespace
}  // namespace trainyard
