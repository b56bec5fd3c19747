// Proves that a device which fails in the middle of a job ends its ranks with an error that says
// what the device was at and what the kernel found, and that nothing hangs, throws or aborts while
// what they had is released.
// One test, with a process of its own: no GPU works again in the process in which it failed.

#include <gmock/gmock.h>

#include "kernels/device/device_error.h"
#include "kernels/device/fault.h"
#include "tests/kernels/call.h"
#include "tests/train/step/run_job.h"

namespace trainyard::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// With a communication stream, and late enough that graphs are launched.
TEST(CudaFault, EndsTheRanksAndSaysWhatTheDeviceWasAt) {
  JobConfig job = TinyJob(FreshDirectory("fault"));
  job.parallelism.zero = Zero::kFull;
  job.steps = 5;
  const Backend& device = TestedBackend();
  absl::StatusOr<Buffer> before = device.Allocate(1000);
  ASSERT_TRUE(before.ok()) << before.status();
  const auto runs = RunJob(job, {.ranks = 2,
                                 .backend = &device,
                                 .before_attempt = [&](int rank, int64_t step, int, StepState&) {
                                   if (rank != 1 || step != 4) return;
                                   Exec exec = device.NewExec(1);
                                   device.kernel<FaultArgs>()(exec, {});
                                 }});
  EXPECT_THAT(runs[1].thrown, ContainsRegex("^CUDA: .*: .+; rank 1 of 2, "
                                            "at or before [a-z_]+ block [0-9]+ "));
  EXPECT_THAT(runs[1].thrown, HasSubstr(": fault: element 0 of -1; rank 1 of 2"));
  // Of the device, which is this rank's, too, or of its peer's end.
  EXPECT_THAT(runs[0].thrown, HasSubstr("; rank 0 of 2, at or before "));
  EXPECT_THROW((void)device.Allocate(1), DeviceError);
  before = Buffer();  // Which the device does not take back.
}

}  // namespace
}  // namespace trainyard::testing
