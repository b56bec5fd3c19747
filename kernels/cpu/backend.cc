// The table of CPU kernels, and their memory. Start at kernels.h.

#include "kernels/device/backend.h"

#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/kernels.h"
#include "kernels/device/device_error.h"
#include "kernels/device/fault.h"
#include "kernels/ops.h"

namespace trainyard {
namespace {

// A CPU's work is done when the call returns.
class CpuEvent final : public Event {
 public:
  void Record(const Exec&) override { time_ = std::chrono::steady_clock::now(); }
  void Await(const Exec&) const override {}
  double SecondsSince(const Event& begin) const noexcept override {
    const auto& from = static_cast<const CpuEvent&>(begin);
    return std::chrono::duration<double>(time_ - from.time_).count();
  }

 private:
  std::chrono::steady_clock::time_point time_;
};

void Fault(Exec&, const FaultArgs&) {
  throw DeviceError(DeviceError::Kind::kDevice, "cpu: a fault that was asked for");
}

class Cpu final : public Backend {
 public:
  Cpu() : Backend(DeviceKind::kCpu, "cpu") {
    CHECK(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        << "this CPU has no AVX2 and FMA instructions, which the CPU kernels are compiled for";
#define REGISTER(Op) Register<Op##Args, cpu::Op>();
    TRAINYARD_FOR_EACH_OP(REGISTER)
#undef REGISTER
    Register<FaultArgs, Fault>();
  }

  Exec NewExec(int threads) const override { return {.threads = threads}; }
  std::unique_ptr<Event> NewEvent() const override { return std::make_unique<CpuEvent>(); }

  absl::StatusOr<Buffer> Allocate(size_t bytes) const override {
    constexpr size_t kAlign = 256, kAddressSpace = size_t{1} << 47;
    void* data = bytes < kAddressSpace
                     ? std::aligned_alloc(kAlign, (bytes + kAlign) / kAlign * kAlign)  // Never 0.
                     : nullptr;
    if (data == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
    }
    std::memset(data, 0, bytes);
    return Buffer(data, bytes, std::free);
  }

  size_t MemoryInUse() const override {
    rusage usage = {};
    ::getrusage(RUSAGE_SELF, &usage);
    return size_t(usage.ru_maxrss) * 1024;
  }

  void CopyToDevice(const Exec&, void* device, const void* host, size_t bytes) const override {
    std::memcpy(device, host, bytes);
  }
  void CopyToHost(const Exec&, void* host, const void* device, size_t bytes) const override {
    std::memcpy(host, device, bytes);
  }
  void Synchronize(const Exec&) const override {}
};

}  // namespace

const Backend& CpuBackend() {
  static const Cpu* const backend = new Cpu;  // Never destroyed: kernels may run until the end.
  return *backend;
}

}  // namespace trainyard
