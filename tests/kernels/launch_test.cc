// Proves that a kernel has the shared memory that its launches need, whatever the order of their
// sizes, and that launches ask CUDA for it only if they need more than before.

#include "kernels/cuda/launch.h"

#include <gtest/gtest.h>

#include "tests/kernels/call.h"

namespace trainyard::testing {
namespace {

__global__ void EmptyKernel() {}

// A limit that was lowered would refuse a launch, as another thread's may come in between.
TEST(Launch, RaisesTheLimitOfSharedMemoryAndNeverLowersIt) {
  Exec exec = TestedBackend().NewExec(1);
  const int before = cuda_emulation::SharedLimitsSet();
  for (const size_t kib : {40, 48, 100, 48, 100}) {
    cuda::Launch(exec, {.blocks = 1, .threads = 32, .shared = kib << 10}, EmptyKernel);
  }
  TestedBackend().Synchronize(exec);
  EXPECT_EQ(cuda_emulation::SharedLimitsSet() - before, 2);
}

}  // namespace
}  // namespace trainyard::testing
