// A backend is one object: the table of its kernels, and its memory. `main` chooses one and passes
// it on, so recording, planning and the controller link neither oneDNN nor CUDA.
//
// A kernel is found by the type of its argument struct (kernels/*.h): each struct has one kernel.

#pragma once

#include <any>
#include <cstdlib>
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

// Owns device memory, and frees it in the destructor. Move-only.
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

// A moment in the work of an Exec. May be recorded again and again. Also reads the device's clock.
class Event {
 public:
  virtual ~Event() = default;
  // Records the moment after all work that `exec` has been given so far.
  virtual void Record(const Exec& exec) = 0;
  // Makes all later work of `exec` wait for the last Record.
  virtual void Await(const Exec& exec) const = 0;
  // The seconds from another event's Record to this one's. Blocks until both have happened. NaN if
  // the device has failed; the next call of another function throws the failure.
  virtual double SecondsSince(const Event& begin) const noexcept = 0;
};

// Work of an Exec that can be launched again in one call.
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

  // Returns the kernel for Args, which checks its arguments first (Check in the header). A missing
  // kernel is a programmer error that names the struct.
  template <typename Args>
  Kernel<Args> kernel() const {
    return entry<Args>().checked;
  }

  // The same without the check, for arguments that are checked once and replayed.
  template <typename Args>
  Kernel<Args> unchecked_kernel() const {
    return entry<Args>().unchecked;
  }

  // Returns a new Exec with its own state, so that two run side by side.
  virtual Exec NewExec(int threads) const = 0;
  virtual std::unique_ptr<Event> NewEvent() const = 0;

  // Captures the work that `enqueue` gives `exec`, without running it. An earlier call of the same
  // kernels must have created everything that they need. Only if the device has graphs.
  virtual bool has_graphs() const { return false; }
  virtual std::unique_ptr<Graph> Capture(Exec& /*exec*/,
                                         const std::function<void()>& /*enqueue*/) const {
    CHECK(has_graphs()) << name_ << " has no graphs";
    std::abort();
  }

  // Returns memory that is 256-byte aligned and zeroed. Call it only while preparing, never within
  // a step. RESOURCE_EXHAUSTED: there is not enough memory.
  virtual absl::StatusOr<Buffer> Allocate(size_t bytes) const = 0;
  // Allocates zeroed memory of the device's host, which kernels read and write over the device's
  // link. The host may access this memory only by CopyToDevice and CopyToHost. Collectives must not
  // get this memory. On a CPU it is as any other. Errors: those of Allocate.
  virtual absl::StatusOr<Buffer> AllocateOnHost(size_t bytes) const { return Allocate(bytes); }
  // Bytes of this device's memory that this process uses. On a CPU: the most that was ever
  // resident. On a GPU: the memory that is no longer free since the device was opened. This
  // includes tensors, scratch memory, the memory of NVIDIA's libraries, and the memory that other
  // ranks on this GPU have allocated since then, but not CUDA's context.
  virtual size_t MemoryInUse() const = 0;

  // Copy between memory of the host's own and that of Allocate and AllocateOnHost, in order with
  // the kernels of `exec`. On return the host's memory may be reused, or has the data.
  virtual void CopyToDevice(const Exec& exec, void* device, const void* host,
                            size_t bytes) const = 0;
  virtual void CopyToHost(const Exec& exec, void* host, const void* device, size_t bytes) const = 0;
  // Returns when all kernels of `exec` are done.
  virtual void Synchronize(const Exec& exec) const = 0;

  // Starts and stops a profiler that watches the process, if the device's maker has one. Between
  // the two calls the profiler records all streams. UNAVAILABLE: the profiler did not start; the
  // message has the reason.
  virtual absl::Status StartProfiler() const { return absl::OkStatus(); }
  virtual void StopProfiler() const noexcept {}
  // Name the work of the calling thread between the two calls. Ranges nest.
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
