// Proves what the CUDA backend says of its device: which one it is, how long it took, and how much
// of it is in use.

#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "common/clock.h"
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

// Against the host's clock, read on either side of each event.
TEST(CudaBackend, EventsMeasureSeconds) {
  constexpr double kBothClocks = 1e-3;
  const Backend& backend = TestedBackend();
  const Exec exec = backend.NewExec(1);
  const auto begin = backend.NewEvent(), end = backend.NewEvent();
  const auto record = [&](Event& event) {
    event.Record(exec);
    backend.Synchronize(exec);
    return RealClock().Monotonic();
  };
  const absl::Duration before = RealClock().Monotonic(), begun = record(*begin);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const absl::Duration ends = RealClock().Monotonic(), after = record(*end);
  const double seconds = end->SecondsSince(*begin);
  EXPECT_GE(seconds, absl::ToDoubleSeconds(ends - begun) - kBothClocks);
  EXPECT_LE(seconds, absl::ToDoubleSeconds(after - before) + kBothClocks);
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
