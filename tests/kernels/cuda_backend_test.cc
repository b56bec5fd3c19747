// Proves what the CUDA backend says of its device: which one it is, and how much of it is in use.

#include <gmock/gmock.h>

#include "kernels/cuda/cuda.h"
#include "tests/kernels/call.h"

namespace trainyard::testing {
namespace {

TEST(CudaBackend, IsRefusedWhereTheDeviceIsAnother) {
  const std::string other = "GPU-8a56a4bc-e184-a047-2620-be19fdf913d5";
  const absl::Status refused = CudaBackend(other).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  const std::string message(refused.message());
  const std::string before = "wanted GPU " + other + ", found ";
  ASSERT_THAT(message, ::testing::StartsWith(before));
  const std::string own = message.substr(before.size(), other.size());
  EXPECT_THAT(own,
              ::testing::MatchesRegex("GPU-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+"));
  EXPECT_TRUE(CudaBackend(own).ok()) << CudaBackend(own).status();
}

TEST(CudaBackend, MemoryInUseIsWhatIsAllocated) {
  constexpr size_t kBytes = size_t{64} << 20, kRounding = size_t{4} << 20;
  const size_t before = TestedBackend().MemoryInUse();
  absl::StatusOr<Buffer> buffer = TestedBackend().Allocate(kBytes);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  const size_t with = TestedBackend().MemoryInUse();
  EXPECT_GE(with, before + kBytes);
  EXPECT_LE(with, before + kBytes + kRounding);
  *buffer = Buffer();
  EXPECT_LE(TestedBackend().MemoryInUse(), before + kRounding);
}

}  // namespace
}  // namespace trainyard::testing
