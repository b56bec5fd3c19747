// Every number of a step keeps its name on the way to the daemon.

#include "worker/trainer/channel_messages.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

// Bug it must catch: two neighbours swapped. Whoever waits for peers seems to compute slowly.
TEST(ChannelMessages, APhaseOfAStepKeepsItsName) {
  StepRecord record;
  record.phases = {.data = 1,
                   .forward = 2,
                   .backward = 3,
                   .grad_sync = 4,
                   .optimizer = 5,
                   .pipeline_bubble = 6,
                   .checkpoint = 7};
  record.step = 8;
  record.tokens = 9;
  record.seconds = 10;
  record.memory_bytes = 11;
  record.memory_planned_bytes = 12;
  const channel::Step step = ToMessage(record, absl::FromUnixSeconds(13));
  EXPECT_EQ(step.phases.data, 1);
  EXPECT_EQ(step.phases.forward, 2);
  EXPECT_EQ(step.phases.backward, 3);
  EXPECT_EQ(step.phases.grad_sync, 4);
  EXPECT_EQ(step.phases.optimizer, 5);
  EXPECT_EQ(step.phases.pipeline_bubble, 6);
  EXPECT_EQ(step.phases.checkpoint, 7);
  EXPECT_EQ(step.step, 8u);
  EXPECT_EQ(step.tokens, 9u);
  EXPECT_EQ(step.seconds, 10);
  EXPECT_EQ(step.memory_bytes, 11u);
  EXPECT_EQ(step.memory_planned_bytes, 12u);
  EXPECT_EQ(step.time, 13);
}

}  // namespace
}  // namespace trainyard
