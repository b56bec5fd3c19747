// Proves that a job whose program leaves the order of its work to luck trains no step, and that all
// ranks say why, also those whose own program is in order.

#include <gmock/gmock.h>

#include "models/program/program.h"
#include "tests/train/step/run_job.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

TEST(OrderCheck, OfARealJobIsToldToAllRanks) {
  for (const bool patterns : {false, true}) {
    JobConfig job = TinyJob(FreshDirectory("order_refused"));
    job.parallelism.zero = Zero::kOptimizer;
    if (patterns) job.trainable = {"lm_head.weight", "model.layers.*"};
    const auto runs = RunJob(job, {.ranks = 2, .edit_program = [](int rank, Program& program) {
                                     if (rank == 0) return;
                                     for (Instance& instance : program.instances) {
                                       instance.awaits.clear();
                                     }
                                   }});
    for (const RankRun& run : runs) {
      EXPECT_EQ(run.status.code(), absl::StatusCode::kInternal) << run.status << run.thrown;
      EXPECT_THAT(std::string(run.status.message()), HasSubstr("rank 1 of 2: nothing orders"));
      EXPECT_TRUE(run.records.empty());
    }
    EXPECT_FALSE(Exists(job.checkpoint->directory));
  }
}

}  // namespace
}  // namespace trainyard::testing
