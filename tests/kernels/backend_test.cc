// Proves that the CPU backend hands out usable memory, and names what it lacks.

#include "kernels/device/backend.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace trainyard::testing {
namespace {

TEST(CpuBackend, MemoryIsAlignedAndZeroed) {
  auto buffer = CpuBackend().Allocate(1000);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 256, 0u);
  EXPECT_EQ(buffer->bytes(), 1000u);
  EXPECT_TRUE(std::all_of(buffer->data(), buffer->data() + 1000,
                          [](std::byte b) { return b == std::byte{0}; }));
}

TEST(CpuBackend, AllocationBeyondTheMachineIsAnError) {
  const auto buffer = CpuBackend().Allocate(size_t{1} << 60);
  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(buffer.status().message().find("1152921504606846976 bytes"), absl::string_view::npos);
}

TEST(CpuBackend, CopiesBothWays) {
  auto buffer = CpuBackend().Allocate(3);
  ASSERT_TRUE(buffer.ok());
  char text[3] = {};
  CpuBackend().CopyToDevice({}, buffer->data(), "abc", 3);
  CpuBackend().CopyToHost({}, text, buffer->data(), 3);
  EXPECT_EQ(std::string(text, 3), "abc");
}

struct NobodysArgs {};

TEST(CpuBackendDeathTest, NamesAMissingKernel) {
  EXPECT_DEATH(CpuBackend().kernel<NobodysArgs>(), "cpu has no kernel for .*NobodysArgs");
}

}  // namespace
}  // namespace trainyard::testing
