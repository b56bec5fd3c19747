// The runtime's calls: memory, copies, graphs. Streams and events are in streams.cc.

#include <sys/mman.h>

#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "common/check.h"
#include "streams.h"

struct CudaEmulationGraph {
  std::vector<std::function<void()>> work;
};

namespace cuda_emulation {
namespace {

// Device memory, and the memory of the host that cudaHostAlloc maps for the device. The host must
// not touch either: the memory is there only while the device works. CUDA would let the host read
// mapped memory, but only the device's calls know when kernels have written it.
class DeviceMemory {
 public:
  void* Allocate(size_t bytes, bool on_host = false) {
    constexpr size_t kPage = 4096, kMost = size_t{1} << 40;
    if (bytes >= kMost) return nullptr;
    const size_t whole = (bytes + kPage) / kPage * kPage;
    const std::lock_guard lock(mutex_);
    void* const data = ::mmap(nullptr, whole, users_ > 0 ? kOpen : PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    areas_[data] = {.bytes = whole, .on_host = on_host};
    return data;
  }
  // A device's cudaFree waits for what was given before. Here, where all ranks share one device,
  // that could wait for other ranks: what is freed stays until nothing is under way.
  void Free(void* data, bool idle) {
    const std::lock_guard lock(mutex_);
    const auto found = areas_.find(data);
    CHECK(found != areas_.end() && !found->second.freed)
        << "free of what cudaMalloc or cudaHostAlloc did not give";
    found->second.freed = true;
    if (!idle) return;
    std::erase_if(areas_, [](const auto& area) {
      if (area.second.freed) ::munmap(area.first, area.second.bytes);
      return area.second.freed;
    });
  }
  size_t allocated() {
    const std::lock_guard lock(mutex_);
    size_t bytes = 0;
    for (const auto& [data, area] : areas_) bytes += area.freed || area.on_host ? 0 : area.bytes;
    return bytes;
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    if (users_++ == 0) Protect(kOpen);
  }
  void Close() {
    const std::lock_guard lock(mutex_);
    if (--users_ == 0) Protect(PROT_NONE);
  }
  bool Has(const void* data, size_t bytes, bool on_host) {
    const std::lock_guard lock(mutex_);
    const auto after = areas_.upper_bound(const_cast<void*>(data));
    if (after == areas_.begin()) return false;
    const auto& [begin, area] = *std::prev(after);
    const size_t offset = size_t(static_cast<const char*>(data) - static_cast<char*>(begin));
    return !area.freed && area.on_host == on_host && offset <= area.bytes &&
           bytes <= area.bytes - offset;
  }

 private:
  static constexpr int kOpen = PROT_READ | PROT_WRITE;
  // What lies side by side changes in one call: hundreds of calls for each piece of work would take
  // longer than the work.
  void Protect(int protection) {
    for (auto next = areas_.begin(); next != areas_.end();) {
      char* const begin = static_cast<char*>(next->first);
      char* end = begin;
      for (; next != areas_.end() && next->first == end; ++next) end += next->second.bytes;
      CHECK(::mprotect(begin, size_t(end - begin), protection) == 0);
    }
  }

  struct Area {
    size_t bytes = 0;
    bool on_host = false;
    bool freed = false;
  };

  std::mutex mutex_;
  std::map<void*, Area> areas_;
  int users_ = 0;  // Threads of whom the device does something.
};

// The host's pinned memory: the bytes of each allocation.
class PinnedMemory {
 public:
  void* Allocate(size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto memory = std::make_unique<std::byte[]>(bytes);
    void* const data = memory.get();
    areas_[data] = {std::move(memory), bytes};
    return data;
  }
  void Free(void* data) {
    const std::lock_guard lock(mutex_);
    CHECK(areas_.erase(data) == 1) << "cudaFreeHost of what cudaMallocHost did not give";
  }
  bool Has(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto after = areas_.upper_bound(const_cast<void*>(data));
    if (after == areas_.begin()) return false;
    const auto& [begin, area] = *std::prev(after);
    return static_cast<const std::byte*>(data) < static_cast<std::byte*>(begin) + area.second;
  }

 private:
  std::mutex mutex_;
  std::map<void*, std::pair<std::unique_ptr<std::byte[]>, size_t>> areas_;
};

// The limits of kernels' dynamic shared memory.
class SharedLimits {
 public:
  // Of CUDA's 48 KiB, what static memory leaves, which the emulation does not count.
  static constexpr size_t kUnasked = size_t{40} << 10;
  void Set(const void* kernel, size_t bytes) {
    const std::lock_guard lock(mutex_);
    limits_[kernel] = bytes;
    ++set_;
  }
  bool Allow(const void* kernel, size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = limits_.find(kernel);
    return bytes <= (found == limits_.end() ? kUnasked : found->second);
  }
  int set() {
    const std::lock_guard lock(mutex_);
    return set_;
  }

 private:
  std::mutex mutex_;
  std::map<const void*, size_t> limits_;
  int set_ = 0;
};

SharedLimits& TheSharedLimits() {
  static SharedLimits limits;
  return limits;
}

PinnedMemory& ThePinnedMemory() {
  static PinnedMemory memory;
  return memory;
}

DeviceMemory& TheDeviceMemory() {
  static DeviceMemory memory;
  return memory;
}

// What this thread captures; null: nothing.
CudaEmulationGraph*& Captured() {
  static thread_local CudaEmulationGraph* graph = nullptr;
  return graph;
}

void* AllocateOnDevice(size_t bytes) { return TheDeviceMemory().Allocate(bytes); }
void FreeOnDevice(void* data, bool idle) { TheDeviceMemory().Free(data, idle); }

}  // namespace

bool& Idle() {
  static thread_local bool idle = true;
  return idle;
}

int& MyDevice() {
  static thread_local int device = 0;
  return device;
}

void OpenMemory() { TheDeviceMemory().Open(); }
void CloseMemory() { TheDeviceMemory().Close(); }
bool IsOnDevice(const void* data, size_t bytes) {
  return TheDeviceMemory().Has(data, bytes, /*on_host=*/false);
}
bool IsMapped(const void* data, size_t bytes) {
  return TheDeviceMemory().Has(data, bytes, /*on_host=*/true);
}
void LimitShared(const void* kernel, size_t bytes) { TheSharedLimits().Set(kernel, bytes); }
bool MayHaveShared(const void* kernel, size_t bytes) {
  return TheSharedLimits().Allow(kernel, bytes);
}
int SharedLimitsSet() { return TheSharedLimits().set(); }

void Enqueue(cudaStream_t stream, std::function<void()> work) {
  if (Captured() != nullptr) return Captured()->work.push_back(std::move(work));
  if (Outcome() != cudaSuccess) return;
  Idle() = false;
  Give(LockDevice(), stream, {.run = [work = std::move(work)] {
         if (Outcome() != cudaSuccess) return;
         OpenMemory();
         work();
         CloseMemory();
       }});
}

void CheckNoCapture(const char* what) {
  CHECK(Captured() == nullptr) << what << " while a stream captures";
}

bool IsIdle() { return Idle(); }

}  // namespace cuda_emulation

using cuda_emulation::CheckNoCapture;
using cuda_emulation::Outcome;

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  CheckNoCapture("another capture");
  if (Outcome() != cudaSuccess) return Outcome();
  cuda_emulation::Captured() = new CudaEmulationGraph;
  return Outcome();
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = std::exchange(cuda_emulation::Captured(), nullptr);
  return Outcome();
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  if (Outcome() != cudaSuccess) return Outcome();
  *exec = new CudaEmulationGraph(*graph);
  return Outcome();
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  CheckNoCapture("a graph");
  const cudaError_t before = Outcome();
  for (const auto& work : exec->work) cuda_emulation::Enqueue(stream, work);
  return before;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return Outcome();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return cudaGraphDestroy(exec); }

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
  }
  return "?";
}

cudaError_t cudaSetDevice(int device) {
  constexpr int kDevices = 64;
  if (device < 0 || device >= kDevices) return cudaErrorInvalidValue;
  cuda_emulation::MyDevice() = device;
  return Outcome();
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  CheckNoCapture("an allocation");
  if (Outcome() != cudaSuccess) return Outcome();
  *data = cuda_emulation::AllocateOnDevice(bytes);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  const cuda_emulation::Lock lock = cuda_emulation::LockDevice();
  cuda_emulation::AdvanceAll(lock);  // A device comes to rest first.
  if (data != nullptr) cuda_emulation::FreeOnDevice(data, cuda_emulation::AllIdle(lock));
  return Outcome();
}

cudaError_t cudaMallocHost(void** data, size_t bytes) {
  CheckNoCapture("an allocation");
  if (Outcome() != cudaSuccess) return Outcome();
  *data = cuda_emulation::ThePinnedMemory().Allocate(bytes);
  return Outcome();
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned flags) {
  CheckNoCapture("an allocation");
  if (Outcome() != cudaSuccess) return Outcome();
  CHECK(flags == cudaHostAllocMapped) << "cudaHostAlloc with flags " << flags;
  *data = cuda_emulation::TheDeviceMemory().Allocate(bytes, /*on_host=*/true);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  if (cuda_emulation::IsMapped(data, 0)) return cudaFree(data);
  cuda_emulation::ThePinnedMemory().Free(data);
  return Outcome();
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = size_t{8} << 30;
  *free = *total - cuda_emulation::TheDeviceMemory().allocated();
  return Outcome();
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {.name = "emulated",
                 .totalGlobalMem = size_t{8} << 30,
                 .major = 9,
                 .minor = 0,
                 .multiProcessorCount = 2,
                 .uuid = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, char(255)}}};
  return Outcome();
}

namespace {

void CopyRows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
              size_t height) {
  for (size_t row = 0; row < height; ++row) {
    std::memmove(static_cast<std::byte*>(to) + row * to_pitch,
                 static_cast<const std::byte*>(from) + row * from_pitch, width);
  }
}

bool IsTheDevices(const void* data) {
  return cuda_emulation::IsOnDevice(data, 0) || cuda_emulation::IsMapped(data, 0);
}

// CUDA does not say what it does if the kind of a copy is not that of the addresses.
void CheckKind(const void* to, const void* from, cudaMemcpyKind kind) {
  using cuda_emulation::IsOnDevice;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  CHECK(!to_device || IsOnDevice(to, 1)) << "a copy to memory that is not the device's";
  CHECK(!from_device || IsOnDevice(from, 1)) << "a copy from memory that is not the device's";
}

}  // namespace

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  CHECK(bytes == 0 || IsTheDevices(to)) << "cudaMemset of memory that the device does not have";
  cuda_emulation::Enqueue(stream, [=] { std::memset(to, value, bytes); });
  return Outcome();
}

// Pageable memory of the host is read before the call returns, or written.
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  if (width * height == 0) return Outcome();
  CheckKind(to, from, kind);
  if (!IsTheDevices(to) || !IsTheDevices(from)) CheckNoCapture("a copy of the host's");
  if (!IsTheDevices(from) && !cuda_emulation::ThePinnedMemory().Has(from)) {
    std::vector<std::byte> data(width * height);
    CopyRows(data.data(), width, from, from_pitch, width, height);
    cuda_emulation::Enqueue(stream, [=, data = std::move(data)] {
      CopyRows(to, to_pitch, data.data(), width, width, height);
    });
    return Outcome();
  }
  cuda_emulation::Enqueue(stream, [=] { CopyRows(to, to_pitch, from, from_pitch, width, height); });
  if (cuda_emulation::IsOnDevice(to, 1) || cuda_emulation::Captured() != nullptr) return Outcome();
  return cudaStreamSynchronize(stream);
}
