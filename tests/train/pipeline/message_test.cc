// Proves which messages an action implies, and that both ends of a pipeline agree on them.

#include "train/pipeline/message.h"

#include <gmock/gmock.h>

#include <map>

#include "tests/train/pipeline/every_schedule.h"

namespace trainyard {
namespace {

constexpr ScheduleOptions kOptions{
    .kind = ScheduleKind::kInterleaved1F1B, .stages = 4, .chunks = 2, .micro_batches = 4};

PipelineAction Action(PipelineAction::Kind kind, int chunk) {
  return {.kind = kind, .chunk = chunk, .micro_batch = 3, .slot = 0};
}

TEST(PipelineMessage, ActivationsPassFromPartToPart) {
  const PipelineAction forward = Action(PipelineAction::kForward, 0);
  EXPECT_EQ(ReceiveBefore(kOptions, 0, forward), std::nullopt);
  const PipelineMessage crossing{
      .kind = PipelineMessage::kActivation, .from = 0, .to = 1, .part = 1, .micro_batch = 3};
  EXPECT_EQ(SendAfter(kOptions, 0, forward), crossing);
  EXPECT_EQ(ReceiveBefore(kOptions, 1, forward), crossing);
}

TEST(PipelineMessage, TheLastStagesChunkIsFollowedByTheFirstStagesNext) {
  const PipelineMessage around{
      .kind = PipelineMessage::kActivation, .from = 3, .to = 0, .part = 4, .micro_batch = 3};
  EXPECT_EQ(SendAfter(kOptions, 3, Action(PipelineAction::kForward, 0)), around);
  EXPECT_EQ(ReceiveBefore(kOptions, 0, Action(PipelineAction::kForward, 1)), around);
  EXPECT_EQ(SendAfter(kOptions, 3, Action(PipelineAction::kForward, 1)), std::nullopt);
}

TEST(PipelineMessage, GradientsPassBackwards) {
  for (const auto kind : {PipelineAction::kBackward, PipelineAction::kBackwardInput}) {
    EXPECT_EQ(ReceiveBefore(kOptions, 3, Action(kind, 1)), std::nullopt);
    const PipelineMessage around{
        .kind = PipelineMessage::kGradient, .from = 0, .to = 3, .part = 3, .micro_batch = 3};
    EXPECT_EQ(SendAfter(kOptions, 0, Action(kind, 1)), around);
    EXPECT_EQ(ReceiveBefore(kOptions, 3, Action(kind, 0)), around);
    EXPECT_EQ(SendAfter(kOptions, 0, Action(kind, 0)), std::nullopt);
  }
}

TEST(PipelineMessage, WeightGradientsStayWhereTheyAre) {
  const PipelineAction weight = Action(PipelineAction::kBackwardWeight, 0);
  EXPECT_EQ(ReceiveBefore(kOptions, 1, weight), std::nullopt);
  EXPECT_EQ(SendAfter(kOptions, 1, weight), std::nullopt);
}

// So a transport that keeps the order between two stages needs no labels.
TEST(PipelineMessage, EveryStageReceivesFromEachOtherInTheOrderThatOneSends) {
  using Channels = std::map<std::pair<int, int>, std::vector<std::string>>;
  for (const ScheduleOptions& options : testing::EverySchedule(8, 4)) {
    Channels sent, received;
    const PipelineSchedule schedule = *MakeSchedule(options);
    for (int s = 0; s < options.stages; ++s) {
      for (const PipelineAction& action : schedule.stages[size_t(s)].actions) {
        if (const auto m = ReceiveBefore(options, s, action)) {
          ASSERT_EQ(m->to, s);
          received[{m->from, s}].push_back(ToString(*m));
        }
        if (const auto m = SendAfter(options, s, action)) {
          ASSERT_EQ(m->from, s);
          sent[{s, m->to}].push_back(ToString(*m));
        }
      }
    }
    ASSERT_EQ(sent, received) << testing::Describe(options);
  }
}

}  // namespace
}  // namespace trainyard
