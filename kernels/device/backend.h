// A backend is one object: the table of its kernels, and its memory. `main` picks one and passes it
// in, so recording, planning and the controller link neither oneDNN nor CUDA.
//
// A kernel is found by the type of its argument struct (kernels/*.h): one struct, one kernel.

#pragma once

#include <any>
#include <functional>
#include <memory>
#include <string>
#include <typeindex>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/check.h"
#include "kernels/device/exec.h"

namespace trainyard {

template <typename Args>
using Kernel = void (*)(Exec&, const Args&);

// Owns device memory; frees it on destruction. Move-only.
class Buffer {
 public:
  using Free = void (*)(void*);
  Buffer() = default;
  Buffer(void* data, size_t bytes, Free free) : data_(data), bytes_(bytes), free_(free) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_), std::swap(bytes_, other.bytes_), std::swap(free_, other.free_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) free_(data_);
  }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Free free_ = nullptr;
};

// A moment in the work of an Exec, recorded again and again. A view of the device's clock, too.
class Event {
 public:
  virtual ~Event() = default;
  // After what `exec` has been given so far.
  virtual void Record(const Exec& exec) = 0;
  // What `exec` is given from now on waits for the last Record.
  virtual void Await(const Exec& exec) const = 0;
  // Seconds from another event's Record to this one's; returns once both have come. NaN where the
  // device has failed, which the next call of another kind throws.
  virtual double SecondsSince(const Event& begin) const noexcept = 0;
};

// What an Exec was given, to be given again in one call.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void Launch(const Exec& exec) = 0;
};

class Backend {
 public:
  Backend(DeviceKind device, std::string name) : device_(device), name_(std::move(name)) {}
  virtual ~Backend() = default;

  DeviceKind device() const { return device_; }
  const std::string& name() const { return name_; }

  // The kernel for Args; a missing one is a programmer error that names the struct. Every call
  // first passes the header's Check(args).
  template <typename Args>
  Kernel<Args> kernel() const {
    return entry<Args>().checked;
  }

  // The same without the check, for arguments that are checked once and replayed.
  template <typename Args>
  Kernel<Args> unchecked_kernel() const {
    return entry<Args>().unchecked;
  }

  // Where kernels run, with what they keep: of its own, so that two run side by side.
  virtual Exec NewExec(int threads) const = 0;
  virtual std::unique_ptr<Event> NewEvent() const = 0;

  // Keeps what `enqueue` gives `exec`, of which nothing runs yet. Everything it needs was made by
  // an earlier call of the same kernels. Only where the device has graphs.
  virtual bool has_graphs() const { return false; }
  virtual std::unique_ptr<Graph> Capture(Exec& /*exec*/,
                                         const std::function<void()>& /*enqueue*/) const {
    CHECK(has_graphs()) << name_ << " has no graphs";
    std::abort();
  }

  // 256-byte aligned, zeroed. RESOURCE_EXHAUSTED when it does not fit. Only while preparing, never
  // within a step.
  virtual absl::StatusOr<Buffer> Allocate(size_t bytes) const = 0;
  // Of this device, in bytes, what this process uses: on a CPU the most that was ever resident; on
  // a GPU what is free no more since it was opened, so tensors, scratch and what NVIDIA's libraries
  // took, but not CUDA's context, and what others took since where ranks share it.
  virtual size_t MemoryInUse() const = 0;

  // Copies between host and this device's memory, in order with the kernels of `exec`. On return
  // the host's memory is free again, or has the data.
  virtual void CopyToDevice(const Exec& exec, void* device, const void* host,
                            size_t bytes) const = 0;
  virtual void CopyToHost(const Exec& exec, void* host, const void* device, size_t bytes) const = 0;
  // Returns when all kernels of `exec` are done.
  virtual void Synchronize(const Exec& exec) const = 0;

  // For a profiler that watches the process, where the device's maker has one; without it, nothing.
  // It records between these two, on all streams. UNAVAILABLE: why it does not.
  virtual absl::Status StartProfiler() const { return absl::OkStatus(); }
  virtual void StopProfiler() const noexcept {}
  // Names what the calling thread does from the one to the other; they nest.
  virtual void BeginRange(const char* /*name*/) const noexcept {}
  virtual void EndRange() const noexcept {}

 protected:
  template <typename Args, Kernel<Args> kernel>
  void Register() {
    const Kernel<Args> checked = [](Exec& exec, const Args& args) {
      Check(args);
      kernel(exec, args);
    };
    const Entry<Args> entry{.checked = checked, .unchecked = kernel};
    CHECK(kernels_.emplace(std::type_index(typeid(Args)), entry).second) << typeid(Args).name();
  }

 private:
  template <typename Args>
  struct Entry {
    Kernel<Args> checked;
    Kernel<Args> unchecked;
  };

  template <typename Args>
  Entry<Args> entry() const {
    const auto found = kernels_.find(std::type_index(typeid(Args)));
    CHECK(found != kernels_.end()) << name_ << " has no kernel for " << typeid(Args).name();
    return std::any_cast<Entry<Args>>(found->second);
  }

  DeviceKind device_;
  std::string name_;
  std::unordered_map<std::type_index, std::any> kernels_;
};

const Backend& CpuBackend();  // kernels/cpu/backend.cc

}  // namespace trainyard
