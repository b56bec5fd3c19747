// The table of CUDA kernels, and their memory. Start at kernels.h.

#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/failure.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/uploads.h"
#include "kernels/device/backend.h"
#include "kernels/device/fault.h"
#include "kernels/ops.h"

namespace trainyard {
namespace {

using cuda::ThrowIfError;

class CudaEvent final : public Event {
 public:
  CudaEvent() { ThrowIfError(cudaEventCreateWithFlags(&event_, cudaEventDefault), "event"); }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  void Record(const Exec& exec) override {
    ThrowIfError(cudaEventRecord(event_, cuda::StreamOf(exec)), "event");
  }
  void Await(const Exec& exec) const override {
    ThrowIfError(cudaStreamWaitEvent(cuda::StreamOf(exec), event_), "event");
  }
  double SecondsSince(const Event& begin) const noexcept override {
    const auto& from = static_cast<const CudaEvent&>(begin);
    float milliseconds = 0;
    const bool known = cudaEventSynchronize(from.event_) == cudaSuccess &&
                       cudaEventSynchronize(event_) == cudaSuccess &&
                       cudaEventElapsedTime(&milliseconds, from.event_, event_) == cudaSuccess;
    return known ? double(milliseconds) * 1e-3 : NAN;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(cudaGraph_t graph) {
    const cudaError_t error = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    ThrowIfError(error, "graph");
  }
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  CudaGraph(const CudaGraph&) = delete;
  void Launch(const Exec& exec) override {
    ThrowIfError(cudaGraphLaunch(graph_, cuda::StreamOf(exec)), "graph");
  }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

// A stream that captures, until the capture is taken or the scope ends.
class Capturing {
 public:
  explicit Capturing(cudaStream_t stream) : stream_(stream) {
    ThrowIfError(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
  }
  ~Capturing() {
    cudaGraph_t graph = nullptr;
    if (!taken_ && cudaStreamEndCapture(stream_, &graph) == cudaSuccess) cudaGraphDestroy(graph);
  }
  Capturing(const Capturing&) = delete;
  cudaGraph_t Take() {
    cudaGraph_t graph = nullptr;
    taken_ = true;
    ThrowIfError(cudaStreamEndCapture(stream_, &graph), "capture");
    return graph;
  }

 private:
  const cudaStream_t stream_;
  bool taken_ = false;
};

struct FaultBody {
  cuda::Failure fail = {};
  __device__ void operator()(int64_t i) const { fail("fault: element % of %", i, -1); }
};
void Fault(Exec& exec, const FaultArgs&) { cuda::ForEach(exec, 1, FaultBody{}); }

class Cuda final : public Backend {
 public:
  explicit Cuda(const std::string& name) : Backend(DeviceKind::kCuda, name) {
#define REGISTER(Op) Register<Op##Args, cuda::Op>();
    TRAINYARD_FOR_EACH_OP(REGISTER)
#undef REGISTER
    Register<FaultArgs, Fault>();
  }

  Exec NewExec(int threads) const override { return cuda::NewExec(threads); }
  std::unique_ptr<Event> NewEvent() const override { return std::make_unique<CudaEvent>(); }

  bool has_graphs() const override { return true; }
  std::unique_ptr<Graph> Capture(Exec& exec, const std::function<void()>& enqueue) const override {
    Capturing capturing(cuda::StreamOf(exec));
    enqueue();
    return std::make_unique<CudaGraph>(capturing.Take());
  }

  absl::StatusOr<Buffer> Allocate(size_t bytes) const override {
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, bytes);  // 256-byte aligned.
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // Clears the error, which would stay.
      size_t free = 0, total = 0;
      ThrowIfError(cudaMemGetInfo(&free, &total), "memory");
      return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes on ",
                                                       name(), ": ", free, " of ", total,
                                                       " bytes are free"));
    }
    ThrowIfError(error, "memory");
    Buffer buffer(data, bytes, [](void* mine) { cudaFree(mine); });
    Zero(buffer);
    return buffer;
  }

  absl::StatusOr<Buffer> AllocateOnHost(size_t bytes) const override {
    void* data = nullptr;
    // Host and device have one address for mapped memory, whose pages are locked.
    const cudaError_t error = cudaHostAlloc(&data, bytes, cudaHostAllocMapped);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // Clears the error, which would stay.
      return absl::ResourceExhaustedError(
          absl::StrCat("no page-locked memory of the host for ", bytes, " bytes beside ", name()));
    }
    ThrowIfError(error, "memory of the host");
    Buffer buffer(data, bytes, [](void* mine) { cudaFreeHost(mine); });
    Zero(buffer);
    return buffer;
  }

  void CopyToDevice(const Exec& exec, void* device, const void* host, size_t bytes) const override {
    Exec own = exec;  // Shares the context.
    cuda::Kept<cuda::Uploads>(own).Copy(cuda::StreamOf(exec), device, host, bytes);
  }
  void CopyToHost(const Exec& exec, void* host, const void* device, size_t bytes) const override {
    // CUDA knows from the address whether the memory is the device's or AllocateOnHost's.
    ThrowIfError(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDefault, cuda::StreamOf(exec)),
                 "copy to the host");
    Synchronize(exec);
  }
  void Synchronize(const Exec& exec) const override {
    ThrowIfError(cudaStreamSynchronize(cuda::StreamOf(exec)), "kernels");
  }

  absl::Status StartProfiler() const override {
    const cudaError_t error = cudaProfilerStart();
    if (error == cudaSuccess) return absl::OkStatus();
    cudaGetLastError();  // Clears the error, which would stay.
    return absl::UnavailableError(absl::StrCat("CUDA: ", cudaGetErrorString(error)));
  }
  void StopProfiler() const noexcept override {
    if (cudaProfilerStop() != cudaSuccess) cudaGetLastError();
  }
  // Without a profiler this is a call through a pointer.
  void BeginRange(const char* name) const noexcept override { nvtxRangePushA(name); }
  void EndRange() const noexcept override { nvtxRangePop(); }

  size_t MemoryInUse() const override {
    const size_t free = FreeBytes();
    return free_when_opened_ - std::min(free_when_opened_, free);
  }

 private:
  static void Zero(const Buffer& buffer) {
    ThrowIfError(cudaMemset(buffer.data(), 0, buffer.bytes()), "memory");
    // Our streams do not wait for the stream of the memset.
    ThrowIfError(cudaStreamSynchronize(nullptr), "memory");
  }
  static size_t FreeBytes() {
    size_t free = 0, total = 0;
    ThrowIfError(cudaMemGetInfo(&free, &total), "memory");
    return free;
  }

  const size_t free_when_opened_ = FreeBytes();
};

// In the spelling of NVML and CUDA_VISIBLE_DEVICES.
std::string UuidOf(const cudaDeviceProp& properties) {
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof(properties.uuid.bytes); ++i) {
    const bool begins_group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    absl::StrAppend(&text, begins_group ? "-" : "",
                    absl::Hex(uint8_t(properties.uuid.bytes[i]), absl::kZeroPad2));
  }
  return text;
}

}  // namespace

absl::StatusOr<const Backend*> CudaBackend(const std::string& uuid) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("no CUDA device: ",
                     error != cudaSuccess ? cudaGetErrorString(error) : "the driver shows none"));
  }
  cudaDeviceProp properties = {};
  ThrowIfError(cudaGetDeviceProperties(&properties, 0), "properties");
  if (properties.major != 9) {
    return absl::FailedPreconditionError(
        absl::StrCat(properties.name, " has compute capability ", properties.major, ".",
                     properties.minor, "; the kernels are compiled for 9.0 (H100, H200)"));
  }
  if (const std::string found = UuidOf(properties); !uuid.empty() && uuid != found) {
    return absl::FailedPreconditionError(absl::StrCat(
        "wanted GPU ", uuid, ", found ", found, " (", properties.name, ") as the first of ", count,
        " that CUDA shows; CUDA_VISIBLE_DEVICES must name the one that is wanted"));
  }
  static const Cuda* const backend = new Cuda(properties.name);  // Never destroyed.
  return backend;
}

}  // namespace trainyard
