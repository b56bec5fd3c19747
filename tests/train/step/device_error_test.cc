// Proves how a rank ends whose device has failed: with a message that says what the device was at,
// and at once, whatever its peers do. cuda_fault_test.cc has the failure of a GPU.

#include "kernels/device/device_error.h"

#include <gmock/gmock.h>

#include <future>

#include "kernels/device/fault.h"
#include "tests/train/step/run_job.h"

namespace trainyard::testing {
namespace {

void Fail() {
  Exec exec;
  CpuBackend().kernel<FaultArgs>()(exec, {});
}

TEST(DeviceErrors, NameTheRankAndWhatTheDeviceWasGivenLast) {
  const auto runs =
      RunJob(TinyJob(FreshDirectory("device_error")),
             {.ranks = 2, .before_attempt = [](int rank, int64_t step, int, StepState&) {
                if (rank == 1 && step == 2) Fail();
              }});
  EXPECT_THAT(runs[1].thrown, ::testing::ContainsRegex(
                                  "^cpu: a fault that was asked for; rank 1 of 2, at or before "
                                  "optimizer block [0-9]+ "));
  EXPECT_THAT(runs[0].thrown, ::testing::HasSubstr("; rank 0 of 2, at or before "));
}

// Rank 0 does not begin the step before rank 1 is gone, which has posted its gradients' sums.
TEST(DeviceErrors, ARankDoesNotWaitForItsPeersBeforeItEnds) {
  std::promise<void> gone;
  const std::shared_future<void> is_gone = gone.get_future().share();
  JobConfig job = TinyJob(FreshDirectory("device_error_alone"));
  job.devices = 2;
  const int64_t actions = 2 * job.batch.global / job.batch.micro / 2;
  int64_t done = -2;  // Calls before the first action.
  const RunOptions options{.progress =
                               [&](int rank, const char*, int64_t step) {
                                 if (rank == 1 && step == 1 && ++done == actions) Fail();
                               },
                           .before_attempt =
                               [&](int rank, int64_t, int, StepState&) {
                                 if (rank == 0) is_gone.wait();
                               }};
  const std::vector<std::string> thrown = RunWorlds(2, [&](CollectiveWorld& world) {
    struct Gone {
      std::promise<void>* promise;
      ~Gone() {
        if (promise != nullptr) promise->set_value();
      }
    } const at_the_end{world.rank() == 1 ? &gone : nullptr};
    RankConfig rank;
    rank.job_id = "j-1", rank.epoch = 1, rank.world = 2, rank.rank = world.rank();
    RunOneRank(job, rank, options, world);
  });
  EXPECT_THAT(thrown[1], ::testing::ContainsRegex("; rank 1 of 2, at or before backward_.* block "
                                                  "[0-9]+ .*f64\\[[0-9]+, [0-9]+\\]"));
  EXPECT_THAT(thrown[0], ::testing::HasSubstr("; rank 0 of 2"));
}

}  // namespace
}  // namespace trainyard::testing
