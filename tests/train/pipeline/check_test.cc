// Proves that every schedule can run, over queues that keep order, and yields the gradients of one
// micro-batch after another; and that CheckSchedule accepts a changed schedule exactly where
// running it still does so (toy_runner.h).

#include "tests/train/pipeline/check.h"

#include <gmock/gmock.h>

#include <functional>

#include "tests/train/pipeline/every_schedule.h"
#include "tests/train/pipeline/toy_runner.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

bool RunsRight(const PipelineSchedule& schedule) {
  return testing::RunSchedule(schedule) == testing::ExpectedGradients(schedule.options);
}

PipelineSchedule ZeroBubble() {
  return *MakeSchedule({.kind = FindSchedule("ZERO_BUBBLE"), .stages = 2, .micro_batches = 3});
}

std::string Finding(const PipelineSchedule& schedule) {
  return std::string(CheckSchedule(schedule).message());
}

TEST(CheckSchedule, EverySchedulePassesAndRunsRight) {
  std::vector<ScheduleOptions> all = testing::EverySchedule(8, 4);
  // Llama 3.1 405B as published, and a deep pipeline.
  for (const auto& [stages, chunks] : {std::pair(8, 8), std::pair(16, 4)}) {
    all.push_back({.kind = FindSchedule("INTERLEAVED_ONE_F_ONE_B"),
                   .stages = stages,
                   .chunks = chunks,
                   .micro_batches = 4 * stages});
  }
  for (const ScheduleOptions& options : all) {
    const auto schedule = MakeSchedule(options);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    ASSERT_EQ(CheckSchedule(*schedule), absl::OkStatus()) << testing::Describe(options);
    ASSERT_TRUE(RunsRight(*schedule)) << testing::Describe(options);
  }
}

// Applies each change to every schedule of up to 3 stages with up to 6 micro-batches, and returns
// how many were found wrong.
using Actions = std::vector<PipelineAction>;
int CountFound(
    const std::function<void(const Actions&, const std::function<void(Actions)>&)>& plant) {
  int found = 0;
  for (const ScheduleOptions& options : testing::EverySchedule(3, 3)) {
    if (options.micro_batches > 6) continue;
    const PipelineSchedule schedule = *MakeSchedule(options);
    for (size_t s = 0; s < schedule.stages.size(); ++s) {
      PipelineSchedule changed = schedule;
      plant(schedule.stages[s].actions, [&](Actions actions) {
        changed.stages[s].actions = std::move(actions);
        const absl::Status status = CheckSchedule(changed);
        ASSERT_EQ(status.ok(), RunsRight(changed)) << testing::Describe(options) << ": " << status;
        found += !status.ok();
      });
    }
  }
  return found;
}

TEST(CheckSchedule, ADroppedActionIsFound) {
  int planted = 0;
  const int found = CountFound([&](const Actions& actions, const auto& with) {
    for (size_t i = 0; i < actions.size(); ++i, ++planted) {
      Actions fewer = actions;
      fewer.erase(fewer.begin() + int(i));
      with(fewer);
    }
  });
  EXPECT_EQ(found, planted);
  EXPECT_GT(planted, 500);
}

TEST(CheckSchedule, ADuplicatedActionIsFound) {
  int planted = 0;
  const int found = CountFound([&](const Actions& actions, const auto& with) {
    for (size_t i = 0; i < actions.size(); ++i) {
      for (size_t to = i; to <= actions.size(); ++to, ++planted) {
        Actions more = actions;
        more.insert(more.begin() + int(to), actions[i]);
        with(more);
      }
    }
  });
  EXPECT_EQ(found, planted);
  EXPECT_GT(planted, 5000);
}

// Some exchanges are harmless: a weight gradient may wait a little longer.
TEST(CheckSchedule, AnExchangeOfTwoActionsIsFoundWhereItMatters) {
  int planted = 0;
  const int found = CountFound([&](const Actions& actions, const auto& with) {
    for (size_t i = 0; i < actions.size(); ++i) {
      for (size_t j = i + 1; j < actions.size(); ++j, ++planted) {
        Actions exchanged = actions;
        std::swap(exchanged[i], exchanged[j]);
        with(exchanged);
      }
    }
  });
  EXPECT_GT(found, planted * 9 / 10);
  EXPECT_LT(found, planted);
}

TEST(CheckSchedule, AWrongSlotIsFound) {
  int planted = 0;
  const int found = CountFound([&](const Actions& actions, const auto& with) {
    for (size_t i = 0; i < actions.size(); ++i) {
      for (const int shift : {-1, 1}) {
        Actions moved = actions;
        moved[i].slot += shift;
        with(moved);
        ++planted;
      }
    }
  });
  EXPECT_EQ(found, planted);
}

TEST(CheckSchedule, AFindingNamesStageActionAndWhatWasWanted) {
  PipelineSchedule schedule = ZeroBubble();  // Stage 1: F0 I0 F1 I1 W0 F2 I2 W1 W2.
  std::swap(schedule.stages[1].actions[0], schedule.stages[1].actions[1]);
  EXPECT_EQ(Finding(schedule),
            "stage 1, action 0 (backward of inputs of chunk 0, micro-batch 0, slot 0): the slot is "
            "free");
  schedule = ZeroBubble();
  schedule.stages[1].actions.pop_back();
  EXPECT_EQ(Finding(schedule),
            "stage 1, chunk 0: wanted 3 forwards, backwards of inputs and backwards of weights, "
            "found 3, 3 and 2");
}

TEST(CheckSchedule, ListsOfAnotherShapeAreFound) {
  PipelineSchedule schedule = ZeroBubble();
  schedule.stages.pop_back();
  EXPECT_EQ(Finding(schedule), "wanted lists for 2 stages, found 1");
  schedule = ZeroBubble();
  schedule.stages[0].slots.clear();
  EXPECT_EQ(Finding(schedule), "stage 0: wanted the slots of 1 chunks, found 0");
  schedule = ZeroBubble();
  schedule.stages[0].slots[0] = -1;
  EXPECT_EQ(Finding(schedule), "stage 0: wanted 1 to 3 slots for each chunk, found -1");
  schedule = ZeroBubble();
  schedule.stages[0].actions[0].chunk = 1;
  EXPECT_THAT(Finding(schedule), HasSubstr("there are 1 chunks"));
  schedule = ZeroBubble();
  schedule.stages[0].actions[0].slot = 2;
  EXPECT_THAT(Finding(schedule), HasSubstr("there are 2 slots"));
  schedule = ZeroBubble();
  schedule.options.micro_batches = 0;
  EXPECT_THAT(Finding(schedule), HasSubstr("wanted at least 1 micro-batch"));
}

TEST(CheckSchedule, WrongMicroBatchesAreFoundThoughNobodyElseWaitsForThem) {
  PipelineSchedule schedule =
      *MakeSchedule({.kind = FindSchedule("ZERO_BUBBLE"), .stages = 1, .micro_batches = 2});
  Actions& actions = schedule.stages[0].actions;  // F0 I0 W0 F1 I1 W1.
  actions.push_back({.kind = PipelineAction::kForward, .chunk = 0, .micro_batch = 2, .slot = 0});
  EXPECT_THAT(Finding(schedule), HasSubstr("found 3, 2 and 2"));
  actions.pop_back();
  actions.insert(actions.begin() + 1, actions[1]);  // I0 twice,
  actions.erase(actions.begin() + 5);               // I1 never.
  EXPECT_THAT(Finding(schedule), HasSubstr("wanted micro-batch 1 next"));
}

// Each stage's list is in order for itself, but both wait for the other.
TEST(CheckSchedule, ADeadlockIsFound) {
  PipelineSchedule schedule = *MakeSchedule({.stages = 2, .micro_batches = 2});
  PipelineSchedule::Stage& first = schedule.stages[0];  // F0 F1 B0 B1.
  std::swap(first.actions[1], first.actions[2]);        // F0 B0 F1 B1 waits less, and runs.
  for (PipelineAction& action : first.actions) action.slot = 0;
  first.slots[0] = 1;
  EXPECT_EQ(CheckSchedule(schedule), absl::OkStatus());
  schedule.stages[1] =
      MakeSchedule({.kind = FindSchedule("GPIPE"), .stages = 2, .micro_batches = 2})
          ->stages[1];  // F0 F1 B0 B1: wants F1 before it gives B0.
  EXPECT_EQ(Finding(schedule),
            "the pipeline deadlocks: stage 0 waits to run action 1 (backward of chunk 0, "
            "micro-batch 0, slot 0); stage 1 waits to run action 1 (forward of chunk 0, "
            "micro-batch 1, slot 1)");
}

// Chunk by chunk instead of round by round: right for itself, but not what stage 0 sends.
TEST(CheckSchedule, AnotherOrderOfMessagesIsFound) {
  PipelineSchedule schedule = *MakeSchedule({.kind = FindSchedule("INTERLEAVED_ONE_F_ONE_B"),
                                             .stages = 2,
                                             .chunks = 2,
                                             .micro_batches = 2});
  // Stage 1: F0a F1a F0b B0b F1b B1b B0a B1a. Backwards of chunk 1 trade places with forwards.
  EXPECT_EQ(CheckSchedule(schedule), absl::OkStatus());
  Actions& actions = schedule.stages[1].actions;
  std::swap(actions[1], actions[2]);
  EXPECT_EQ(Finding(schedule),
            "stage 1 wants the activation for part 3, micro-batch 0, but the next message from "
            "stage 0 is the activation for part 1, micro-batch 1");
}

}  // namespace
}  // namespace trainyard
