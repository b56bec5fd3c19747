// The runtime's calls: memory, streams that run at once, events, graphs.

#include <sys/mman.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "common/check.h"
#include "cuda_runtime.h"

struct CudaEmulationGraph {
  std::vector<std::function<void()>> work;
};

namespace cuda_emulation {
namespace {

// Device memory, which the host must not touch: it is there only while the device works.
class DeviceMemory {
 public:
  void* Allocate(size_t bytes) {
    constexpr size_t kPage = 4096, kMost = size_t{1} << 40;
    if (bytes >= kMost) return nullptr;
    const size_t whole = (bytes + kPage) / kPage * kPage;
    const std::lock_guard lock(mutex_);
    void* const data = ::mmap(nullptr, whole, users_ > 0 ? kOpen : PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    sizes_[data] = whole;
    return data;
  }
  void Free(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(data);
    CHECK(found != sizes_.end()) << "cudaFree of what cudaMalloc did not give";
    ::munmap(data, found->second);
    sizes_.erase(found);
  }
  size_t allocated() {
    const std::lock_guard lock(mutex_);
    size_t bytes = 0;
    for (const auto& [data, size] : sizes_) bytes += size;
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

 private:
  static constexpr int kOpen = PROT_READ | PROT_WRITE;
  void Protect(int protection) {
    for (const auto& [data, bytes] : sizes_) ::mprotect(data, bytes, protection);
  }

  std::mutex mutex_;
  std::map<void*, size_t> sizes_;
  int users_ = 0;  // Threads of whom the device does something.
};

DeviceMemory& TheDeviceMemory() {
  static DeviceMemory memory;
  return memory;
}

// What this thread captures; null: nothing.
CudaEmulationGraph*& Captured() {
  static thread_local CudaEmulationGraph* graph = nullptr;
  return graph;
}

bool& Idle() {
  static thread_local bool idle = true;
  return idle;
}

void* AllocateOnDevice(size_t bytes) { return TheDeviceMemory().Allocate(bytes); }
void FreeOnDevice(void* data) { TheDeviceMemory().Free(data); }

}  // namespace

void Enqueue(std::function<void()> work) {
  if (Captured() != nullptr) return Captured()->work.push_back(std::move(work));
  if (Outcome() != cudaSuccess) return;
  Idle() = false;
  TheDeviceMemory().Open();
  work();
  TheDeviceMemory().Close();
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

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  CheckNoCapture("a graph");
  const cudaError_t before = Outcome();
  for (const auto& work : exec->work) cuda_emulation::Enqueue(work);
  return before;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return Outcome();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return cudaGraphDestroy(exec); }

struct CudaEmulationEvent {
  std::chrono::steady_clock::time_point time;
};

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

cudaError_t cudaMalloc(void** data, size_t bytes) {
  CheckNoCapture("an allocation");
  if (Outcome() != cudaSuccess) return Outcome();
  *data = cuda_emulation::AllocateOnDevice(bytes);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  if (data != nullptr) cuda_emulation::FreeOnDevice(data);
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

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = nullptr;  // There is no other than the one.
  return Outcome();
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return Outcome(); }
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  CheckNoCapture("a wait for the device");
  cuda_emulation::Idle() = true;
  return Outcome();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (Outcome() != cudaSuccess) return Outcome();
  *event = new CudaEmulationEvent;
  return Outcome();
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return Outcome();
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->time = std::chrono::steady_clock::now();
  return Outcome();
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return Outcome();
}
