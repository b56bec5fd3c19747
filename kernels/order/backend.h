// A device that computes nothing and has no memory. It notes what its kernels would read and write,
// and in which order its streams would run (Accesses). So the engine of a rank can be run as it is,
// to see what orders its work.

#pragma once

#include <map>

#include "kernels/device/backend.h"
#include "kernels/order/accesses.h"

namespace trainyard {

class OrderBackend final : public Backend {
 public:
  // `device`: the kind of device that this one stands for. A GPU has graphs. `accesses` must
  // outlive the backend and all that it makes.
  OrderBackend(Accesses& accesses, DeviceKind device);

  // Each Exec is a line of its own; the first one has the first line.
  Exec NewExec(int threads) const override;
  std::unique_ptr<Event> NewEvent() const override;
  bool has_graphs() const override { return device() == DeviceKind::kCuda; }
  std::unique_ptr<Graph> Capture(Exec& exec, const std::function<void()>& enqueue) const override;
  // The memory has addresses, and must not be touched.
  absl::StatusOr<Buffer> Allocate(size_t bytes) const override;
  size_t MemoryInUse() const override { return 0; }
  void CopyToDevice(const Exec& exec, void* device, const void* host, size_t bytes) const override;
  // Whatever is read is zero, but for the numbers of slots of each expert (ExpertOrder), which the
  // host adds up: they are even on every rank.
  void CopyToHost(const Exec& exec, void* host, const void* device, size_t bytes) const override;
  void Synchronize(const Exec&) const override {}

  static Accesses::Line LineOf(const Exec& exec);

  struct Counted {
    int64_t experts = 0, slots = 0;
  };
  using CountedSlots = std::map<const void*, Counted>;  // By the memory of the counts.

 private:
  Accesses& accesses_;
  mutable uintptr_t next_address_;
  mutable CountedSlots counted_;  // For the compute thread alone.
};

}  // namespace trainyard
