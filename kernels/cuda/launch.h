// The basis of every kernel of this folder: errors, launches, and loops over elements.
//
// The .cu files are also compiled as C++ against tests/testing/cuda_emulation, which runs them on
// the CPU. So they use only the part of CUDA that the emulation has. Code that needs libraries is
// in *_adapter.cc, and code that needs PTX in tensor_core.h, for which the emulation has a
// substitute.

#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <new>

#include "kernels/device/exec.h"
#include "kernels/device/tensor.h"

namespace trainyard::cuda {

// Throws a DeviceError that names `what`, unless `error` is cudaSuccess. If a kernel has left a
// message (failure.h), the error contains this message.
void ThrowIfError(cudaError_t error, const char* what);

inline cudaStream_t StreamOf(const Exec& exec) { return static_cast<cudaStream_t>(exec.stream); }

// Lets launches of the kernel have up to `bytes` of dynamic shared memory. Asks CUDA only if no
// earlier call allowed as much, and never lowers the limit: another thread may be about to launch.
// Thread-safe. A process uses one device.
void AllowShared(const void* kernel, size_t bytes);

struct Grid {
  int64_t blocks;
  int threads;        // Per block.
  size_t shared = 0;  // Bytes of dynamic shared memory; up to 227 KiB.
};

// Enqueues kernel(args...) on the stream of `exec`. Does nothing if the grid has no blocks.
template <typename... Parameters, typename... Args>
void Launch(Exec& exec, const Grid& grid, void (*kernel)(Parameters...), const Args&... args) {
  if (grid.blocks == 0) return;
  // CUDA's 48 KiB are for static memory, too. Kernels with dynamic memory have at most 8 KiB of it.
  constexpr size_t kUnasked = 40 << 10;
  if (grid.shared > kUnasked) AllowShared(reinterpret_cast<const void*>(kernel), grid.shared);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(grid.blocks));
  config.blockDim = dim3(unsigned(grid.threads));
  config.dynamicSmemBytes = grid.shared;
  config.stream = StreamOf(exec);
  ThrowIfError(cudaLaunchKernelEx(&config, kernel, Parameters(args)...), "launch");
}

// The block's dynamic shared memory, 16-byte aligned: Grid::shared bytes of any content.
template <typename T>
__device__ T* DynamicShared() {
#ifdef TRAINYARD_CUDA_EMULATION
  return reinterpret_cast<T*>(cuda_emulation::DynamicShared());
#else
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  return reinterpret_cast<T*>(dynamic_shared);
#endif
}

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The number of multiprocessors of an H100 SXM and of an H200, for which grids are planned. A
// constant, and not the device's property: the size of a grid decides the order of some sums, which
// thus have the same bits on GPUs with fewer multiprocessors, as the H100 PCIe.
constexpr int64_t kMultiprocessors = 132;

// Enough to fill the chip several times; loops stride by the grid.
constexpr int64_t kMaxBlocks = kMultiprocessors * 8;

// kCount neighbouring elements, read or written in one access to memory. One access has at most 16
// bytes; larger packs take several.
template <typename T, int kCount>
struct alignas(std::min<size_t>(16, sizeof(T) * kCount)) Pack {
  T v[kCount];
};

template <typename T, int kCount>
__device__ Pack<T, kCount> LoadPack(const T* from) {
  return *reinterpret_cast<const Pack<T, kCount>*>(from);
}
template <typename T, int kCount>
__device__ void StorePack(T* to, const Pack<T, kCount>& pack) {
  new (to) Pack<T, kCount>(pack);  // One access; assigning bf16 would take one per element.
}

template <typename T>
constexpr int kPackOf = 16 / int(sizeof(T));

// Whether rows of `columns` elements at all of these addresses can be read in packs of 16 bytes.
template <typename T, typename... Pointers>
bool CanPack(int64_t columns, const Pointers*... pointers) {
  const bool aligned = ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
  return aligned && columns % kPackOf<T> == 0;
}

template <typename Body>
__global__ void __launch_bounds__(256) ElementsKernel(int64_t count, Body body) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) body(i);
}

// Calls body(i) for each i in [0, count), on as many threads as are useful. `body` must be a
// __device__ lambda, or a struct with a __device__ call operator.
template <typename Body>
void ForEach(Exec& exec, int64_t count, const Body& body) {
  constexpr int kThreads = 256;
  Launch(exec, {std::min(CeilDiv(count, kThreads), kMaxBlocks), kThreads}, ElementsKernel<Body>,
         count, body);
}

// Calls body.template operator()<n>(i) for elements [i, i + n) until `count` are done. n is
// kPackOf<T> if `packed` (CanPack of all pointers), and 1 otherwise.
template <int kCount, typename Body>
struct EachPack {
  Body body;
  __device__ void operator()(int64_t pack) const {
    body.template operator()<kCount>(pack * kCount);
  }
};
template <typename T, typename Body>
void ForEachPack(Exec& exec, int64_t count, bool packed, const Body& body) {
  constexpr int kCount = kPackOf<T>;
  if (!packed || count % kCount != 0) return ForEach(exec, count, EachPack<1, Body>{body});
  ForEach(exec, count / kCount, EachPack<kCount, Body>{body});
}

}  // namespace trainyard::cuda
