// Proves of the emulation that it shows what kernels must not rely on: what shared memory has when
// a block begins, dynamic or static, and the order of blocks and of threads.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "kernels/cuda/launch.h"
#include "tests/kernels/call.h"

// Kernels are functions of this namespace: their static shared memory is found by it.
namespace trainyard::cuda {
namespace {

constexpr int kBlocks = 8, kThreads = 64;

// The kinds of shared memory: dynamic, and static in a kernel, in a function and in a template.
constexpr int kKinds = 4;

inline float& InAFunction() {
  __shared__ float x[kThreads];
  return x[threadIdx.x];
}
template <typename T>
T& InATemplate() {
  __shared__ T x[kThreads];
  return x[threadIdx.x];
}

// Writes what each thread finds to found[kind, block, thread], and leaves numbers.
__global__ void FindingKernel(float* found) {
  __shared__ float x[kThreads];
  float* const kinds[kKinds] = {DynamicShared<float>() + threadIdx.x, &x[threadIdx.x],
                                &InAFunction(), &InATemplate<float>()};
  for (int kind = 0; kind < kKinds; ++kind) {
    found[(kind * kBlocks + int(blockIdx.x)) * kThreads + int(threadIdx.x)] = *kinds[kind];
    *kinds[kind] = 1;
  }
}

// Writes when each block begins, and when each thread of a block comes to its barrier.
__global__ void OrderKernel(int* counter, int* blocks, int* threads) {
  const int now = atomicAdd(counter, 1);
  threads[int(blockIdx.x) * kThreads + int(threadIdx.x)] = now;
  __syncthreads();
  if (threadIdx.x == 0) blocks[blockIdx.x] = now / kThreads;
}

}  // namespace
}  // namespace trainyard::cuda

namespace trainyard::testing {
namespace {

using cuda::kBlocks, cuda::kKinds, cuda::kThreads;

// An array in the device's memory; zeros at first.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(size_t elements)
      : exec_(TestedBackend().NewExec(1)),
        elements_(elements),
        buffer_(*TestedBackend().Allocate(elements * sizeof(T))) {}
  T* data() const { return reinterpret_cast<T*>(buffer_.data()); }
  std::vector<T> Read() const {
    std::vector<T> read(elements_);
    TestedBackend().CopyToHost(exec_, read.data(), buffer_.data(), elements_ * sizeof(T));
    return read;
  }

 private:
  Exec exec_;
  size_t elements_;
  Buffer buffer_;
};

TEST(Emulation, SharedMemoryIsNoNumberWhenABlockBegins) {
  Exec exec = TestedBackend().NewExec(1);
  for (int launch = 0; launch < 2; ++launch) {
    const OnDevice<float> found(size_t{kKinds} * kBlocks * kThreads);
    cuda::Launch(exec, {.blocks = kBlocks, .threads = kThreads, .shared = kThreads * sizeof(float)},
                 cuda::FindingKernel, found.data());
    TestedBackend().Synchronize(exec);
    const std::vector<float> read = found.Read();
    for (size_t i = 0; i < read.size(); ++i) {
      ASSERT_TRUE(std::isnan(read[i]))
          << "kind " << i / (kBlocks * kThreads) << ", block " << i / kThreads % kBlocks
          << ", thread " << i % kThreads << ", launch " << launch << ": " << read[i];
    }
  }
}

// Of 20 launches, as many orders, but for chance: 8 blocks have at least 32 orders.
TEST(Emulation, BlocksAndThreadsRunInOtherOrdersEachTime) {
  Exec exec = TestedBackend().NewExec(1);
  std::set<std::vector<int>> orders_of_blocks, orders_of_threads;
  for (int launch = 0; launch < 20; ++launch) {
    const OnDevice<int> counter(1), blocks(kBlocks), threads(size_t{kBlocks} * kThreads);
    cuda::Launch(exec, {.blocks = kBlocks, .threads = kThreads}, cuda::OrderKernel, counter.data(),
                 blocks.data(), threads.data());
    TestedBackend().Synchronize(exec);
    std::vector<int> order = blocks.Read();
    orders_of_blocks.insert(order);
    std::sort(order.begin(), order.end());
    for (int i = 0; i < kBlocks; ++i) EXPECT_EQ(order[size_t(i)], i) << "each block runs once";
    const std::vector<int> all = threads.Read();
    for (int block = 0; block < kBlocks; ++block) {
      std::vector<int> of_block(all.begin() + block * kThreads,
                                all.begin() + (block + 1) * kThreads);
      const int first = *std::min_element(of_block.begin(), of_block.end());
      for (int& at : of_block) at -= first;
      orders_of_threads.insert(of_block);
    }
  }
  EXPECT_GE(orders_of_blocks.size(), 8u);
  EXPECT_GE(orders_of_threads.size(), 100u);
}

}  // namespace
}  // namespace trainyard::testing
