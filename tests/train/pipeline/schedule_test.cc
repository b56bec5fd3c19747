// Proves small schedules against lists written by hand, which options are
// legal, and how slots are given out.

#include "train/pipeline/schedule.h"

#include <gmock/gmock.h>

#include "absl/strings/str_join.h"
#include "tests/train/pipeline/every_schedule.h"
#include "tests/train/pipeline/simulate.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "F0 F1 B0": forward, Backward, Input and Weight halves of a micro-batch; with several chunks a
// letter for the chunk follows, "F0a F1a F0b".
std::string ActionsOf(const PipelineSchedule& schedule, int stage) {
  const auto print = [&](std::string* out, const PipelineAction& action) {
    absl::StrAppend(out, std::string(1, "FBIW"[action.kind]), action.micro_batch);
    if (schedule.options.chunks > 1) out->push_back(char('a' + action.chunk));
  };
  return absl::StrJoin(schedule.stages[size_t(stage)].actions, " ", print);
}

std::string ErrorOf(const ScheduleOptions& options) {
  return std::string(MakeSchedule(options).status().message());
}

TEST(Schedule, GPipeRunsAllForwardsThenAllBackwards) {
  const auto schedule =
      MakeSchedule({.kind = FindSchedule("GPIPE"), .stages = 2, .micro_batches = 3});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(ActionsOf(*schedule, 0), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(ActionsOf(*schedule, 1), "F0 F1 F2 B0 B1 B2");
}

TEST(Schedule, OneForwardOneBackwardWarmsUpByTheStagesThatFollow) {
  const auto schedule =
      MakeSchedule({.kind = FindSchedule("ONE_F_ONE_B"), .stages = 3, .micro_batches = 4});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(ActionsOf(*schedule, 0), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(ActionsOf(*schedule, 1), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(ActionsOf(*schedule, 2), "F0 B0 F1 B1 F2 B2 F3 B3");
}

TEST(Schedule, InterleavingSendsRoundsOfMicroBatchesThroughAllChunks) {
  const auto schedule = MakeSchedule({.kind = FindSchedule("INTERLEAVED_ONE_F_ONE_B"),
                                      .stages = 2,
                                      .chunks = 2,
                                      .micro_batches = 4});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(ActionsOf(*schedule, 0),
            "F0a F1a F0b F1b F2a B0b F3a B1b F2b B0a F3b B1a B2b B3b B2a B3a");
  EXPECT_EQ(ActionsOf(*schedule, 1),
            "F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a");
}

TEST(Schedule, ZeroBubblePutsWeightGradientsOffByTheStagesBefore) {
  const auto schedule =
      MakeSchedule({.kind = FindSchedule("ZERO_BUBBLE"), .stages = 3, .micro_batches = 4});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(ActionsOf(*schedule, 0), "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
  EXPECT_EQ(ActionsOf(*schedule, 1), "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3");
  EXPECT_EQ(ActionsOf(*schedule, 2), "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
}

TEST(Schedule, SlotsAreTheLowestFree) {
  const auto schedule =
      MakeSchedule({.kind = FindSchedule("ZERO_BUBBLE"), .stages = 3, .micro_batches = 4});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_THAT(schedule->stages[1].slots, ElementsAre(3));
  std::vector<int> slots;
  for (const PipelineAction& action : schedule->stages[1].actions) slots.push_back(action.slot);
  //                             F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
  EXPECT_THAT(slots, ElementsAre(0, 1, 0, 2, 1, 0, 0, 2, 1, 0, 2, 0));
}

// The figures in docs/parallelism.md.
TEST(Schedule, ChunksHaveTheirWorstMomentsAtDifferentTimes) {
  const auto schedule = MakeSchedule({.kind = FindSchedule("INTERLEAVED_ONE_F_ONE_B"),
                                      .stages = 4,
                                      .chunks = 2,
                                      .micro_batches = 8});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_THAT(schedule->stages[0].slots, ElementsAre(8, 4));
  EXPECT_EQ(Simulate(*schedule, {})->stages[0].peak_in_flight, 11);
}

TEST(Schedule, EveryChunkHasAsManySlotsAsItEverHasMicroBatchesInFlight) {
  for (const ScheduleOptions& options : testing::EverySchedule(8, 4)) {
    const auto schedule = MakeSchedule(options);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    for (const PipelineSchedule::Stage& stage : schedule->stages) {
      std::vector<int> in_flight(size_t(options.chunks)), peak(size_t(options.chunks));
      for (const PipelineAction& action : stage.actions) {
        int& count = in_flight[size_t(action.chunk)];
        count += action.kind == PipelineAction::kForward;
        peak[size_t(action.chunk)] = std::max(peak[size_t(action.chunk)], count);
        count -= action.kind == PipelineAction::kBackward ||
                 action.kind == PipelineAction::kBackwardWeight;
      }
      ASSERT_EQ(stage.slots, peak) << testing::Describe(options);
    }
  }
}

TEST(Schedule, SizesBelowOneAreRefused) {
  EXPECT_EQ(ErrorOf({.stages = 0}), "ONE_F_ONE_B: wanted at least 1 stage, found 0; nearest 1");
  EXPECT_THAT(ErrorOf({.chunks = -1}), HasSubstr("wanted at least 1 chunk a stage, found -1"));
  EXPECT_THAT(ErrorOf({.micro_batches = 0}), HasSubstr("wanted at least 1 micro-batch, found 0"));
}

TEST(Schedule, ChunksBelongToInterleaving) {
  for (const char* kind : {"GPIPE", "ONE_F_ONE_B", "ZERO_BUBBLE"}) {
    EXPECT_THAT(ErrorOf({.kind = FindSchedule(kind), .stages = 2, .chunks = 2, .micro_batches = 2}),
                HasSubstr("wanted 1 chunk a stage, found 2; nearest 1"));
  }
  const ScheduleKind* interleaved = FindSchedule("INTERLEAVED_ONE_F_ONE_B");
  EXPECT_THAT(ErrorOf({.kind = interleaved, .stages = 2, .chunks = 1, .micro_batches = 2}),
              HasSubstr("wanted at least 2 chunks a stage, found 1; nearest 2"));
  EXPECT_THAT(ErrorOf({.kind = interleaved, .stages = 1, .chunks = 2, .micro_batches = 2}),
              HasSubstr("wanted at least 2 stages, found 1; nearest 2"));
}

TEST(Schedule, InterleavingWantsWholeRoundsOfMicroBatches) {
  ScheduleOptions options{
      .kind = FindSchedule("INTERLEAVED_ONE_F_ONE_B"), .stages = 4, .chunks = 2};
  options.micro_batches = 6;
  EXPECT_EQ(ErrorOf(options),
            "INTERLEAVED_ONE_F_ONE_B: wanted micro-batches in a multiple of its 4 stages, "
            "found 6; nearest 4 or 8");
  options.micro_batches = 3;
  EXPECT_THAT(ErrorOf(options), HasSubstr("found 3; nearest 4"));
}

}  // namespace
}  // namespace trainyard
