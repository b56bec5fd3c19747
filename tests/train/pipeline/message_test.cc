// Proves which messages an action implies, and that both ends of a pipeline agree on them.

#include "train/pipeline/message.h"

#include <gmock/gmock.h>

#include <map>

#include "tests/train/pipeline/every_schedule.h"
#include "tests/train/pipeline/simulate.h"

namespace trainyard {
namespace {

const PipelineSchedule kSchedule = *MakeSchedule({.kind = FindSchedule("INTERLEAVED_ONE_F_ONE_B"),
                                                  .stages = 4,
                                                  .chunks = 2,
                                                  .micro_batches = 4});

PipelineAction Action(PipelineAction::Kind kind, int chunk) {
  return {.kind = kind, .chunk = chunk, .micro_batch = 3, .slot = 0};
}

TEST(PipelineMessage, ActivationsPassFromPartToPart) {
  const PipelineAction forward = Action(PipelineAction::kForward, 0);
  EXPECT_EQ(ReceiveBefore(kSchedule, 0, forward), std::nullopt);
  const PipelineMessage crossing{
      .kind = PipelineMessage::kActivation, .from = 0, .to = 1, .part = 1, .micro_batch = 3};
  EXPECT_EQ(SendAfter(kSchedule, 0, forward), crossing);
  EXPECT_EQ(ReceiveBefore(kSchedule, 1, forward), crossing);
}

TEST(PipelineMessage, TheLastStagesChunkIsFollowedByTheFirstStagesNext) {
  const PipelineMessage around{
      .kind = PipelineMessage::kActivation, .from = 3, .to = 0, .part = 4, .micro_batch = 3};
  EXPECT_EQ(SendAfter(kSchedule, 3, Action(PipelineAction::kForward, 0)), around);
  EXPECT_EQ(ReceiveBefore(kSchedule, 0, Action(PipelineAction::kForward, 1)), around);
  EXPECT_EQ(SendAfter(kSchedule, 3, Action(PipelineAction::kForward, 1)), std::nullopt);
}

TEST(PipelineMessage, GradientsPassBackwards) {
  for (const auto kind : {PipelineAction::kBackward, PipelineAction::kBackwardInput}) {
    EXPECT_EQ(ReceiveBefore(kSchedule, 3, Action(kind, 1)), std::nullopt);
    const PipelineMessage around{
        .kind = PipelineMessage::kGradient, .from = 0, .to = 3, .part = 3, .micro_batch = 3};
    EXPECT_EQ(SendAfter(kSchedule, 0, Action(kind, 1)), around);
    EXPECT_EQ(ReceiveBefore(kSchedule, 3, Action(kind, 0)), around);
    EXPECT_EQ(SendAfter(kSchedule, 0, Action(kind, 0)), std::nullopt);
  }
}

// Stages 0 1 1 0 hold the four parts.
TEST(PipelineMessage, BetweenPartsOfOneStageTheyStayThere) {
  const PipelineSchedule schedule =
      *MakeSchedule({.kind = FindSchedule("V_HALF"), .stages = 2, .chunks = 2, .micro_batches = 4});
  const PipelineMessage activation{
      .kind = PipelineMessage::kActivation, .from = 1, .to = 1, .part = 2, .micro_batch = 3};
  EXPECT_EQ(SendAfter(schedule, 1, Action(PipelineAction::kForward, 0)), activation);
  EXPECT_EQ(ReceiveBefore(schedule, 1, Action(PipelineAction::kForward, 1)), activation);
  const PipelineMessage gradient{
      .kind = PipelineMessage::kGradient, .from = 1, .to = 1, .part = 1, .micro_batch = 3};
  EXPECT_EQ(SendAfter(schedule, 1, Action(PipelineAction::kBackwardInput, 1)), gradient);
  EXPECT_EQ(ReceiveBefore(schedule, 1, Action(PipelineAction::kBackwardInput, 0)), gradient);
  EXPECT_TRUE(activation.stays() && gradient.stays());
  EXPECT_NE(activation.channel(), gradient.channel());
  // Back on stage 0, the last part follows no other of it.
  EXPECT_EQ(SendAfter(schedule, 0, Action(PipelineAction::kForward, 1)), std::nullopt);
  EXPECT_EQ(ReceiveBefore(schedule, 0, Action(PipelineAction::kForward, 1))->from, 1);
}

TEST(PipelineMessage, WeightGradientsStayWhereTheyAre) {
  const PipelineAction weight = Action(PipelineAction::kBackwardWeight, 0);
  EXPECT_EQ(ReceiveBefore(kSchedule, 1, weight), std::nullopt);
  EXPECT_EQ(SendAfter(kSchedule, 1, weight), std::nullopt);
}

// So a transport that keeps the order between two stages needs no labels.
TEST(PipelineMessage, EveryStageReceivesFromEachOtherInTheOrderThatOneSends) {
  using Channels = std::map<std::tuple<int, int, int>, std::vector<std::string>>;
  for (const ScheduleOptions& options : testing::EverySchedule(8, 4)) {
    Channels sent, received;
    const PipelineSchedule schedule = *MakeSchedule(options);
    for (int s = 0; s < options.stages; ++s) {
      for (const PipelineAction& action : schedule.stages[size_t(s)].actions) {
        if (const auto m = ReceiveBefore(schedule, s, action)) {
          ASSERT_EQ(m->to, s);
          received[m->channel()].push_back(ToString(*m));
        }
        if (const auto m = SendAfter(schedule, s, action)) {
          ASSERT_EQ(m->from, s);
          sent[m->channel()].push_back(ToString(*m));
        }
      }
    }
    ASSERT_EQ(sent, received) << testing::Describe(options);
  }
}

// A message leaves when it is expected. Were it expected only by the action that reads it, stages
// of interleaved schedules would wait for one another.
TEST(PipelineMessage, AreExpectedSoEarlyThatNoSlotWaitsForWhatItSentLast) {
  for (const ScheduleOptions& options : testing::EverySchedule(8, 4)) {
    const PipelineSchedule schedule = *MakeSchedule(options);
    const Simulation simulation = *Simulate(schedule, {});
    std::map<std::string, double> leaves;  // No message before it is expected.
    for (int s = 0; s < options.stages; ++s) {
      const auto expected = ExpectedFrom(schedule, s);
      const auto& actions = schedule.stages[size_t(s)].actions;
      for (size_t i = 0; i < actions.size(); ++i) {
        for (int later : expected[i]) {
          ASSERT_GE(later, int(i));
          const auto message = ReceiveBefore(schedule, s, actions[size_t(later)]);
          ASSERT_TRUE(message && !message->stays() && !leaves.contains(ToString(*message)));
          leaves[ToString(*message)] = i == 0 ? 0 : simulation.stages[size_t(s)].actions[i - 1].end;
        }
      }
    }
    size_t sent = 0;
    for (int s = 0; s < options.stages; ++s) {
      std::map<std::pair<int, int>, double> left;  // By chunk and slot.
      const auto& actions = schedule.stages[size_t(s)].actions;
      for (size_t i = 0; i < actions.size(); ++i) {
        double& slot = left[{actions[i].chunk, actions[i].slot}];
        const auto when = simulation.stages[size_t(s)].actions[i];
        if (actions[i].kind == PipelineAction::kForward) {
          ASSERT_LE(slot, when.start)
              << testing::Describe(options) << ", stage " << s << ", " << ToString(actions[i]);
        }
        const auto message = SendAfter(schedule, s, actions[i]);
        if (message && !message->stays()) {
          ASSERT_TRUE(leaves.contains(ToString(*message)));
          slot = std::max({slot, when.end, leaves[ToString(*message)]});
          ++sent;
        }
      }
    }
    ASSERT_EQ(sent, leaves.size());
  }
}

// Only the messages of one stage have an order; a place is there when the slot's action before is
// done.
TEST(PipelineMessage, AreExpectedInTheOrderInWhichTheyComeOnceThereIsAPlace) {
  for (const ScheduleOptions& options : testing::EverySchedule(8, 4)) {
    const PipelineSchedule schedule = *MakeSchedule(options);
    for (int s = 0; s < options.stages; ++s) {
      const auto expected = ExpectedFrom(schedule, s);
      const auto& actions = schedule.stages[size_t(s)].actions;
      std::map<int, int> last;  // By the stage that sends.
      for (size_t i = 0; i < actions.size(); ++i) {
        for (int later : expected[i]) {
          const PipelineAction& action = actions[size_t(later)];
          for (int j = int(i); j < later; ++j) {
            ASSERT_FALSE(actions[size_t(j)].chunk == action.chunk &&
                         actions[size_t(j)].slot == action.slot)
                << testing::Describe(options) << ", stage " << s << ", " << ToString(action);
          }
          int& before =
              last.try_emplace(ReceiveBefore(schedule, s, action)->from, -1).first->second;
          ASSERT_LT(before, later);
          before = later;
        }
      }
    }
  }
}

}  // namespace
}  // namespace trainyard
