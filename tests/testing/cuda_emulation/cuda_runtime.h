// CUDA on the CPU, for tests: the part of the runtime that kernels/cuda uses, so that its .cu files
// compile as C++ and run where there is no GPU. A thread of CUDA is a fiber. Blocks run one after
// the other, in an order that is drawn for each launch. So do the fibers between two barriers, in
// an order that is drawn each time, so that a missing barrier shows. Shared memory, dynamic and
// static, is NaN when a block begins. What the hardware alone can show (memory order between
// running blocks, tensor cores, speed) it does not have.
//
// Found in place of CUDA's own header, by its directory's place in the include path.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <tuple>

#define TRAINYARD_CUDA_EMULATION 1

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static thread_local  // One block runs at a time (static_shared.h).
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  explicit dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// Of the fiber that runs.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

enum cudaError_t {
  cudaSuccess,
  cudaErrorInvalidValue,
  cudaErrorMemoryAllocation,
  cudaErrorNotReady,
  cudaErrorNoDevice,
  cudaErrorLaunchFailure,
};
using cudaStream_t = struct CudaEmulationStream*;

namespace cuda_emulation {

// From now on a trap is as on a device: the kernel ends, nothing of any stream runs any more, and
// calls return cudaErrorLaunchFailure, beginning with the one after the launch, to the end of the
// process. Else a trap ends the process, with a message for death tests.
void MakeTrapsErrors();

// What calls return: cudaSuccess, until the device has failed.
cudaError_t Outcome();

// Of the running block; of any content at its start.
std::byte* DynamicShared();
// Returns when all lanes of `mask` in the running fiber's warp have called it.
void SyncWarp(unsigned mask);
// What lane `lane` of the running fiber's warp passed; all lanes of `mask` call it together.
void Exchange(unsigned mask, int lane, const void* mine, void* theirs, size_t bytes);
// The lanes of `mask` that passed the same bytes.
unsigned Match(unsigned mask, const void* mine, size_t bytes);
int Lane();
void Run(dim3 grid, dim3 block, size_t shared, const std::function<void()>& kernel);

// Gives work to a stream (streams.h), or keeps it where this thread captures.
void Enqueue(cudaStream_t stream, std::function<void()> work);
// Ends the program where this thread captures: `what` is no part of a graph.
void CheckNoCapture(const char* what);
// Whether this thread has waited for all that it has given the device.
bool IsIdle();
// Between these, memory of the device is there.
void OpenMemory();
void CloseMemory();
// Sets the most dynamic shared memory that a kernel may have. Before that it is 48 KiB.
void LimitShared(const void* kernel, size_t bytes);
bool MayHaveShared(const void* kernel, size_t bytes);
// How often a kernel's limit has been set.
int SharedLimitsSet();
// Whether cudaMalloc gave these bytes.
bool IsOnDevice(const void* data, size_t bytes);
// Whether cudaHostAlloc gave them.
bool IsMapped(const void* data, size_t bytes);

template <typename T>
T Shuffle(unsigned mask, T mine, int lane) {
  T theirs;
  Exchange(mask, lane, &mine, &theirs, sizeof(T));
  return theirs;
}

}  // namespace cuda_emulation

void __syncthreads();
int __syncthreads_or(int predicate);
inline void __syncwarp(unsigned mask = 0xffffffffu) { cuda_emulation::SyncWarp(mask); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}
[[noreturn]] void __trap();

template <typename T>
T __shfl_sync(unsigned mask, T x, int lane, int width = warpSize) {
  const int first = cuda_emulation::Lane() / width * width;
  return cuda_emulation::Shuffle(mask, x, first + lane % width);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T x, int lanes, int width = warpSize) {
  const int lane = cuda_emulation::Lane(), other = lane ^ lanes;
  return cuda_emulation::Shuffle(mask, x, other / width == lane / width ? other : lane);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T x, int delta, int width = warpSize) {
  const int lane = cuda_emulation::Lane();
  return cuda_emulation::Shuffle(mask, x, lane % width >= delta ? lane - delta : lane);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T x, int delta, int width = warpSize) {
  const int lane = cuda_emulation::Lane();
  return cuda_emulation::Shuffle(mask, x, lane % width + delta < width ? lane + delta : lane);
}
unsigned __ballot_sync(unsigned mask, int predicate);
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

template <typename T>
unsigned __match_any_sync(unsigned mask, T x) {
  return cuda_emulation::Match(mask, &x, sizeof(T));
}

// Byte i of the result is the byte of y:x whose number is hexadecimal digit i of `selector`.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  unsigned bytes = 0;
  for (int i = 0; i < 4; ++i) {
    const uint64_t both = uint64_t{y} << 32 | x;
    bytes |= unsigned(both >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  }
  return bytes;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }

template <typename T>
T __ldg(const T* from) {
  return *from;
}
template <typename T>
T atomicAdd(T* to, T x) {
  const T before = *to;
  *to = before + x;
  return before;
}
template <typename T>
T atomicMax(T* to, T x) {
  const T before = *to;
  *to = std::max(before, x);
  return before;
}
template <typename T>
T atomicMin(T* to, T x) {
  const T before = *to;
  *to = std::min(before, x);
  return before;
}

inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float fdividef(float a, float b) { return a / b; }

// The runtime. Device memory is the host's, which cannot read it.
using cudaEvent_t = struct CudaEmulationEvent*;
using cudaGraph_t = struct CudaEmulationGraph*;
using cudaGraphExec_t = cudaGraph_t;
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault,  // By the addresses.
};
enum { cudaHostAllocMapped = 2 };
enum { cudaStreamDefault, cudaStreamNonBlocking };
enum { cudaEventDefault = 0, cudaEventDisableTiming = 2 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
};
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor, multiProcessorCount;
  struct {
    char bytes[16];
  } uuid;
};

const char* cudaGetErrorString(cudaError_t error);
// All devices are one, but the emulation of NCCL tells the ranks of one process apart by them.
cudaError_t cudaSetDevice(int device);
cudaError_t cudaMalloc(void** data, size_t bytes);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaFree(void* data);
// Pinned: a copy from there reads it when the stream comes to the copy.
cudaError_t cudaMallocHost(void** data, size_t bytes);
// Mapped memory, which the host may not touch here (runtime.cc).
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

inline cudaError_t cudaGetLastError() { return cuda_emulation::Outcome(); }
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cuda_emulation::Outcome(); }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -5, cuda_emulation::Outcome();
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream);
inline cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream);
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}
template <typename F>
cudaError_t cudaFuncSetAttribute(F* kernel, cudaFuncAttribute, int bytes) {
  cuda_emulation::LimitShared(reinterpret_cast<const void*>(kernel), size_t(bytes));
  return cuda_emulation::Outcome();
}

template <typename... Parameters, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const Args&... args) {
  if (!cuda_emulation::MayHaveShared(reinterpret_cast<const void*>(kernel),
                                     config->dynamicSmemBytes)) {
    return cudaErrorInvalidValue;
  }
  const cudaError_t before = cuda_emulation::Outcome();
  cuda_emulation::Enqueue(
      config->stream, [config = *config, kernel, given = std::tuple<Parameters...>(args...)] {
        cuda_emulation::Run(config.gridDim, config.blockDim, config.dynamicSmemBytes,
                            [&] { std::apply(kernel, given); });
      });
  return before;
}
