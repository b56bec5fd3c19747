#include "tests/testing/mapped_heap.h"

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdlib>
#include <memory_resource>
#include <new>

#include "common/check.h"

namespace {

constexpr size_t kBytes = size_t{8} << 30;  // Larger blocks than the pool's are not used again.
constexpr size_t kHeader = 64;  // Holds the size of what follows, which is aligned for vectors.

class Heap {
 public:
  explicit Heap(std::byte* memory)
      : begin_(memory),
        all_(memory, kBytes, std::pmr::null_memory_resource()),
        pool_({.max_blocks_per_chunk = 0, .largest_required_pool_block = size_t{4} << 20}, &all_) {}
  bool Has(const void* data) const { return data >= begin_ && data < begin_ + kBytes; }
  void* Allocate(size_t bytes) {
    auto* const block = static_cast<std::byte*>(pool_.allocate(bytes + kHeader, kHeader));
    new (block) size_t(bytes);
    return block + kHeader;
  }
  void Free(void* data) {
    auto* const block = static_cast<std::byte*>(data) - kHeader;
    pool_.deallocate(block, *reinterpret_cast<size_t*>(block) + kHeader, kHeader);
  }

 private:
  std::byte* const begin_;
  std::pmr::monotonic_buffer_resource all_;
  std::pmr::synchronized_pool_resource pool_;
};

Heap*& TheHeap() {
  static Heap* heap = nullptr;
  return heap;
}

}  // namespace

namespace trainyard::testing {

void UseMappedHeap() {
  void* memory = nullptr;
  const cudaError_t error = cudaHostAlloc(&memory, kBytes, cudaHostAllocMapped);
  CHECK(error == cudaSuccess) << cudaGetErrorString(error);
  alignas(Heap) static std::byte place[sizeof(Heap)];  // Never destroyed.
  TheHeap() = new (place) Heap(static_cast<std::byte*>(memory));
}

}  // namespace trainyard::testing

void* operator new(size_t bytes) {
  if (TheHeap() != nullptr) return TheHeap()->Allocate(bytes);
  void* const data = std::malloc(bytes + (bytes == 0));
  if (data == nullptr) throw std::bad_alloc();
  return data;
}
void operator delete(void* data) noexcept {
  if (data == nullptr) return;
  TheHeap() != nullptr&& TheHeap()->Has(data) ? TheHeap()->Free(data) : std::free(data);
}
void operator delete(void* data, size_t) noexcept { operator delete(data); }
