#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "common/check.h"
#include "cuda_runtime.h"
#include "emulated_tensor_core.h"
#include "static_shared.h"
#include "tests/testing/printed_seed.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

// Leaves the running stack, whose top goes to *from, for the one whose top is `to`. A barrier takes
// two of these per thread, and ucontext's would each ask the operating system for a signal mask.
extern "C" void CudaEmulationSwitch(void** from, void* to);
asm(R"(
  .text
  .type CudaEmulationSwitch, @function
CudaEmulationSwitch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size CudaEmulationSwitch, . - CudaEmulationSwitch
)");

namespace cuda_emulation {
namespace {

constexpr size_t kStack = size_t{64} << 10;
void Enter();

// Where some of a block's threads wait for each other.
struct Barrier {
  int waiting = 0;
  int64_t passed = 0;  // How often all have come.
};

struct Fiber {
  // Begins in Enter(), as if that had been left by the switch: six registers and where to return.
  Fiber() {
    auto* const end = reinterpret_cast<uintptr_t*>(stack.get() + kStack);
    end[-2] = reinterpret_cast<uintptr_t>(&Enter);
    top = end - 8;
  }

  uint3 thread = {};
  int index = 0;  // In its block.
  std::unique_ptr<std::byte[]> stack = std::make_unique_for_overwrite<std::byte[]>(kStack);
  void* top;
  bool done = false;
  Barrier* at = nullptr;  // What it waits for, and the count that ends it.
  int64_t until = 0;
};

// Of lanes of a warp, and what they pass each other there. Who has come to the next barrier has
// read what was passed at the last, so that two places for each lane are enough.
struct WarpBarrier {
  Barrier barrier;
  std::byte exchanged[2][32][sizeof(double)];
};

struct Warp {
  WarpBarrier whole;
  std::map<unsigned, WarpBarrier> parts;  // By the mask of those that meet there.
  int predicates[32] = {};
};

// All that runs, one block at a time.
struct Machine {
  std::mutex mutex;  // Held by who launches.
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Warp> warps;
  Barrier block;
  int threads = 0, alive = 0;
  int any = 0;  // Of __syncthreads_or.
  std::vector<std::byte> shared;
  const std::function<void()>* kernel = nullptr;
  Fiber* running = nullptr;
  void* scheduler = nullptr;  // The top of its stack.
  bool trapped = false;       // The kernel.
  std::atomic<int64_t> tensor_products = 0;
  uint64_t random = 0;  // Of the orders in which blocks and fibers run.
};

constinit Machine machine;

struct Device {
  std::atomic<bool> survives_traps = false, failed = false;
};

Device& TheDevice() {
  static Device device;
  return device;
}

Warp& MyWarp() { return machine.warps[size_t(machine.running->index / warpSize)]; }

void Leave() { CudaEmulationSwitch(&machine.running->top, machine.scheduler); }

// What a fiber does: a thread of each block that runs.
void Enter() {
  for (;;) {
    (*machine.kernel)();
    machine.running->done = true;
    --machine.alive;
    Leave();
  }
}

// Until `wanted` threads are at the barrier; of a block, those that have ended do not count.
void Wait(Barrier& barrier, int wanted) {
  if (++barrier.waiting >= wanted) {
    barrier.waiting = 0;
    ++barrier.passed;
    return;
  }
  Fiber* const me = machine.running;
  me->at = &barrier;
  me->until = barrier.passed + 1;
  Leave();
  me->at = nullptr;
}

bool CanRun(const Fiber& fiber) {
  return !fiber.done && (fiber.at == nullptr || fiber.at->passed >= fiber.until);
}

// A number below `below`; SplitMix64.
uint64_t Random(uint64_t below) {
  uint64_t x = machine.random += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return (x ^ x >> 31) % below;
}

// The numbers below `count`, each once, in an order of its own.
class Order {
 public:
  explicit Order(uint64_t count) : count_(count), next_(Random(count)) {
    do {
      stride_ = 1 + Random(count);
    } while (std::gcd(stride_, count) != 1);
  }
  uint64_t Next() {
    const uint64_t next = next_;
    next_ += stride_;
    if (next_ >= count_) next_ -= count_;
    return next;
  }

 private:
  uint64_t count_, next_, stride_;
};

// Runs the block's fibers until all are done.
void RunBlock() {
  machine.alive = machine.threads;
  machine.block = {};
  machine.warps.assign(size_t((machine.threads + warpSize - 1) / warpSize), {});
  std::memset(machine.shared.data(), 0xff, machine.shared.size());  // NaN.
  for (int i = 0; i < machine.threads; ++i) machine.fibers[size_t(i)]->done = false;
  while (machine.alive > 0) {
    bool ran = false;
    Order order(uint64_t(machine.threads));
    for (int i = 0; i < machine.threads; ++i) {
      Fiber& fiber = *machine.fibers[order.Next()];
      if (!CanRun(fiber)) continue;
      ran = true;
      machine.running = &fiber;
      threadIdx = fiber.thread;
      CudaEmulationSwitch(&machine.scheduler, fiber.top);
      if (machine.trapped) return machine.fibers.clear();  // In the middle of the kernel.
    }
    if (!ran && machine.block.waiting > 0 && machine.block.waiting >= machine.alive) {
      machine.block.waiting = 0;  // The others have ended.
      ++machine.block.passed;
      ran = true;
    }
    CHECK(ran) << "threads of block " << blockIdx.x << " wait at different barriers";
  }
}

}  // namespace

std::byte* DynamicShared() { return machine.shared.data(); }

int Lane() { return machine.running->index % warpSize; }

// Where the lanes of `mask` meet, the running one among them.
WarpBarrier& BarrierOf(unsigned mask) {
  const int lanes =
      std::min(machine.threads - machine.running->index / warpSize * warpSize, warpSize);
  const unsigned there = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;
  CHECK((mask & ~there) == 0 && (mask >> Lane() & 1) != 0)
      << "lane " << Lane() << " of " << lanes << " with mask " << mask;
  Warp& warp = MyWarp();
  return mask == 0xffffffffu ? warp.whole : warp.parts[mask];
}

void SyncWarp(unsigned mask) { Wait(BarrierOf(mask).barrier, __builtin_popcount(mask)); }

// What the lanes of `mask` passed, one place each, until the running one meets them again.
const std::byte (*Pass(unsigned mask, const void* mine, size_t bytes))[sizeof(double)] {
  WarpBarrier& meeting = BarrierOf(mask);
  auto& exchanged = meeting.exchanged[meeting.barrier.passed % 2];
  CHECK(bytes <= sizeof(exchanged[0])) << bytes << " bytes passed between lanes";
  std::memcpy(exchanged[Lane()], mine, bytes);
  Wait(meeting.barrier, __builtin_popcount(mask));
  return exchanged;
}

void Exchange(unsigned mask, int lane, const void* mine, void* theirs, size_t bytes) {
  CHECK((mask >> lane & 1) != 0) << "lane " << lane << " does not take part";
  std::memcpy(theirs, Pass(mask, mine, bytes)[lane], bytes);
}

unsigned Match(unsigned mask, const void* mine, size_t bytes) {
  const auto* const passed = Pass(mask, mine, bytes);
  unsigned same = 0;
  for (int lane = 0; lane < warpSize; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    if (std::memcmp(mine, passed[lane], bytes) == 0) same |= 1u << lane;
  }
  return same;
}

std::array<const void*, 32> FromAllLanes(const void* mine) {
  std::array<const void*, 32> all;
  static_assert(sizeof(all) == sizeof(WarpBarrier().exchanged[0]));
  std::memcpy(all.data(), Pass(0xffffffffu, &mine, sizeof(mine)), sizeof(all));
  return all;
}

int64_t TensorProducts() { return machine.tensor_products; }
void CountTensorProduct() {
  if (Lane() == 0) ++machine.tensor_products;
}

void Run(dim3 grid, dim3 block, size_t shared, const std::function<void()>& kernel) {
  const std::lock_guard lock(machine.mutex);
  CHECK(shared <= 227 * 1024) << shared << " bytes of shared memory";
  machine.threads = int(block.x * block.y * block.z);
  CHECK(machine.threads > 0 && machine.threads <= 1024) << machine.threads << " threads in a block";
  const uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z;
  CHECK(blocks > 0 && grid.y <= 65535 && grid.z <= 65535) << blocks << " blocks";
  gridDim = grid;
  blockDim = block;
  machine.shared.resize(shared);
  machine.kernel = &kernel;
  while (int(machine.fibers.size()) < machine.threads)
    machine.fibers.push_back(std::make_unique<Fiber>());
  for (int i = 0; i < machine.threads; ++i) {
    const unsigned n = unsigned(i);
    Fiber& fiber = *machine.fibers[size_t(i)];
    fiber.index = i;
    fiber.thread = {n % block.x, n / block.x % block.y, n / block.x / block.y};
  }
  if (machine.random == 0) machine.random = trainyard::testing::PrintedSeed();
  StaticShared shared_by_name;
  Order order(blocks);
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t n = order.Next();
    blockIdx = {unsigned(n % grid.x), unsigned(n / grid.x % grid.y), unsigned(n / grid.x / grid.y)};
    RunBlock();
    shared_by_name.EndBlock();
    if (machine.trapped) break;
  }
  if (std::exchange(machine.trapped, false)) TheDevice().failed = true;
}

void MakeTrapsErrors() { TheDevice().survives_traps = true; }

cudaError_t Outcome() { return TheDevice().failed ? cudaErrorLaunchFailure : cudaSuccess; }

}  // namespace cuda_emulation

using cuda_emulation::machine;

void __syncthreads() { cuda_emulation::Wait(machine.block, machine.alive); }

int __syncthreads_or(int predicate) {
  machine.any |= predicate != 0;
  __syncthreads();
  const int any = machine.any;
  __syncthreads();
  machine.any = 0;
  __syncthreads();
  return any;
}

unsigned __ballot_sync(unsigned mask, int predicate) {
  cuda_emulation::Warp& warp = cuda_emulation::MyWarp();
  warp.predicates[cuda_emulation::Lane()] = predicate;
  cuda_emulation::SyncWarp(mask);
  unsigned ballot = 0;
  for (int lane = 0; lane < warpSize; ++lane) {
    if ((mask >> lane & 1) != 0 && warp.predicates[lane] != 0) ballot |= 1u << lane;
  }
  cuda_emulation::SyncWarp(mask);
  return ballot;
}

void __trap() {
  std::cerr << "trap in thread " << threadIdx.x << " of block " << blockIdx.x << '\n';
  if (!cuda_emulation::TheDevice().survives_traps) std::abort();
  machine.trapped = true;
  cuda_emulation::Leave();
  std::abort();  // Nobody comes back.
}
