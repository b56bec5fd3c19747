// Streams of the emulated device. A stream does what it was given in its order, each piece as soon
// as it can: at once, unless something before it waits for another stream or rank. Or late: only
// when somebody waits for it, and no more than he needs, so that an order which no event asks for
// is not kept by chance.

#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "cuda_runtime.h"

namespace cuda_emulation {

// A piece of what a stream was given.
struct Work {
  std::function<void()> run;
  // Whether it can be run; asked where it is the next of its stream. Null: yes.
  std::function<bool()> ready = nullptr;
  // The streams that it waits for while it cannot.
  std::function<std::vector<cudaStream_t>()> needs = nullptr;
};

// The device: held by whoever looks at streams, and by those that run.
using Lock = std::unique_lock<std::mutex>;
Lock LockDevice();

void Give(const Lock& lock, cudaStream_t stream, Work work);
// Runs what can be: of `stream`, and what it needs; of all streams. Whether anything was.
bool Advance(const Lock& lock, cudaStream_t stream);
bool AdvanceAll(const Lock& lock);
// What pieces wait for may have come.
void Changed(const Lock& lock);
void WaitUntil(Lock& lock, cudaStream_t stream, const std::function<bool()>& done);
bool IsIdle(const Lock& lock, cudaStream_t stream);
bool AllIdle(const Lock& lock);

// The device that this thread has set.
int& MyDevice();

// Whether this thread has waited for all that it has given.
bool& Idle();

// While one lives, streams do nothing before somebody waits for it.
class Late {
 public:
  Late();
  ~Late();
  Late(const Late&) = delete;
};

}  // namespace cuda_emulation
