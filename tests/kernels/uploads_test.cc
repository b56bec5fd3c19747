// Proves that a copy to the device has the bytes that the host had when it asked, although the
// device makes the copy later.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/kernels/call.h"
#include "tests/testing/cuda_emulation/streams.h"

namespace trainyard::testing {
namespace {

// More copies than there are pieces of pinned memory, and one of many pieces.
TEST(Uploads, HaveWhatTheHostHadWhenItAsked) {
  constexpr size_t kLarge = (size_t{20} << 20) + 3, kSmall = 5, kCopies = 100;
  const Backend& backend = TestedBackend();
  const Exec exec = backend.NewExec(1);
  const absl::StatusOr<Buffer> buffer = backend.Allocate(kLarge + kCopies * kSmall);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  std::mt19937 random(1);
  std::vector<uint8_t> want(buffer->bytes()), host;
  for (uint8_t& byte : want) byte = uint8_t(random());
  const auto copy = [&](size_t at, size_t bytes) {
    host.assign(want.begin() + ptrdiff_t(at), want.begin() + ptrdiff_t(at + bytes));
    backend.CopyToDevice(exec, buffer->data() + at, host.data(), bytes);
    std::fill(host.begin(), host.end(), uint8_t{0});
  };
  std::vector<uint8_t> got(want.size());
  const cuda_emulation::Late late;
  copy(0, kLarge);
  for (size_t i = 0; i < kCopies; ++i) copy(kLarge + i * kSmall, kSmall);
  backend.CopyToHost(exec, got.data(), buffer->data(), got.size());
  EXPECT_TRUE(got == want);
}

}  // namespace
}  // namespace trainyard::testing
