// Device memory that shows writes beside it, and how much there is.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/device/backend.h"

namespace trainyard::testing {

// The CPU's, with guards around each allocation.
class GuardedBackend : public Backend {
 public:
  GuardedBackend() : Backend(CpuBackend()) {}
  absl::StatusOr<Buffer> Allocate(size_t bytes) const override {
    std::byte* const whole = static_cast<std::byte*>(
        std::aligned_alloc(kGuard, (bytes + kGuard - 1) / kGuard * kGuard + 2 * kGuard));
    std::memset(whole, 0, bytes + kGuard);
    std::memset(whole, kMark, kGuard);
    std::memset(whole + kGuard + bytes, kMark, kGuard);
    allocated_.push_back({whole, bytes});
    total_ += bytes;
    return Buffer(whole + kGuard, bytes,
                  [](void* data) { std::free(static_cast<std::byte*>(data) - kGuard); });
  }
  size_t MemoryInUse() const override { return total_; }
  void CopyToDevice(const Exec&, void* device, const void* host, size_t bytes) const override {
    std::memcpy(device, host, bytes);
  }
  void CopyToHost(const Exec&, void* host, const void* device, size_t bytes) const override {
    std::memcpy(host, device, bytes);
  }
  void Synchronize(const Exec&) const override {}
  Exec NewExec(int threads) const override { return CpuBackend().NewExec(threads); }
  std::unique_ptr<Event> NewEvent() const override { return CpuBackend().NewEvent(); }
  // While what was allocated is.
  bool Intact() const {
    return std::all_of(allocated_.begin(), allocated_.end(), [](const auto& a) {
      const auto marked = [](std::byte b) { return b == std::byte(kMark); };
      const std::byte* const end = a.first + kGuard + a.second;
      return std::all_of(a.first, a.first + kGuard, marked) &&
             std::all_of(end, end + kGuard, marked);
    });
  }
  size_t total() const { return total_; }

 private:
  static constexpr size_t kGuard = 4096;
  static constexpr int kMark = 0xA5;
  mutable std::vector<std::pair<std::byte*, size_t>> allocated_;
  mutable size_t total_ = 0;
};

}  // namespace trainyard::testing
