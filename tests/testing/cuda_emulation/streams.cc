#include "streams.h"

#include <algorithm>
#include <chrono>
#include <list>
#include <memory>
#include <utility>

#include "common/check.h"

struct CudaEmulationStream {
  std::deque<cuda_emulation::Work> work;
  bool advances = false;  // Now; work that needs itself waits for others.
};

struct CudaEmulationEvent {
  struct State {
    uint64_t recorded = 0, done = 0;  // How often.
    cudaStream_t stream = nullptr;    // Of the last.
    std::chrono::steady_clock::time_point time;
  };
  std::shared_ptr<State> state = std::make_shared<State>();  // Streams keep it longer.
  bool has_time = true;
};

namespace cuda_emulation {
namespace {

struct Device {
  std::mutex mutex;  // Guards the rest, and what runs.
  std::condition_variable changed;
  std::list<CudaEmulationStream> streams{1};  // The first is the default one.
  int late = 0;
};

Device& TheDevice() {
  static Device device;
  return device;
}

CudaEmulationStream& Of(cudaStream_t stream) {
  return stream == nullptr ? TheDevice().streams.front() : *stream;
}

}  // namespace

Lock LockDevice() { return Lock(TheDevice().mutex); }

void Give(const Lock& lock, cudaStream_t stream, Work work) {
  Of(stream).work.push_back(std::move(work));
  Changed(lock);
}

bool Advance(const Lock& lock, cudaStream_t of) {
  CudaEmulationStream& stream = Of(of);
  if (std::exchange(stream.advances, true)) return false;
  bool any = false;
  while (!stream.work.empty()) {
    Work& next = stream.work.front();
    if (next.ready != nullptr && !next.ready()) {
      bool others = false;
      for (const cudaStream_t needed : next.needs()) others |= Advance(lock, needed);
      any |= others;
      if (!next.ready()) break;
    }
    next.run();
    stream.work.pop_front();
    any = true;
  }
  stream.advances = false;
  if (any) TheDevice().changed.notify_all();
  return any;
}

bool AdvanceAll(const Lock& lock) {
  bool any = false;
  for (bool again = true; again; any |= again) {
    again = false;
    for (CudaEmulationStream& stream : TheDevice().streams) again |= Advance(lock, &stream);
  }
  return any;
}

void Changed(const Lock& lock) {
  if (TheDevice().late == 0) AdvanceAll(lock);
  TheDevice().changed.notify_all();
}

void WaitUntil(Lock& lock, cudaStream_t stream, const std::function<bool()>& done) {
  CheckNoCapture("a wait for the device");
  while (!done()) {
    if (!Advance(lock, stream) && !done()) TheDevice().changed.wait(lock);
  }
}

bool IsIdle(const Lock&, cudaStream_t stream) { return Of(stream).work.empty(); }

bool AllIdle(const Lock&) {
  const auto& streams = TheDevice().streams;
  return std::all_of(streams.begin(), streams.end(), [](const auto& s) { return s.work.empty(); });
}

Late::Late() {
  const Lock lock = LockDevice();
  ++TheDevice().late;
}

Late::~Late() {
  const Lock lock = LockDevice();
  if (--TheDevice().late == 0) AdvanceAll(lock);
}

}  // namespace cuda_emulation

using cuda_emulation::CheckNoCapture;
using cuda_emulation::Lock;
using cuda_emulation::LockDevice;
using cuda_emulation::Outcome;

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  const Lock lock = LockDevice();
  *stream = &cuda_emulation::TheDevice().streams.emplace_back();
  return Outcome();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock = LockDevice();
  cuda_emulation::AdvanceAll(lock);
  // One that still has something to do stays, as it does on a device.
  if (stream->work.empty()) {
    cuda_emulation::TheDevice().streams.remove_if([&](const auto& s) { return &s == stream; });
  }
  return Outcome();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Lock lock = LockDevice();
  cuda_emulation::WaitUntil(lock, stream, [&] { return cuda_emulation::IsIdle(lock, stream); });
  cuda_emulation::Idle() = true;
  return Outcome();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  CheckNoCapture("a wait for an event");
  if (Outcome() != cudaSuccess) return Outcome();
  const Lock lock = LockDevice();
  const auto state = event->state;
  cuda_emulation::Give(lock, stream,
                       {.run = [] {},
                        .ready = [state, count = state->recorded] { return state->done >= count; },
                        .needs = [on = state->stream] { return std::vector<cudaStream_t>{on}; }});
  return Outcome();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = nullptr;
  if (Outcome() != cudaSuccess) return Outcome();
  *event = new CudaEmulationEvent;
  (*event)->has_time = (flags & cudaEventDisableTiming) == 0;
  return Outcome();
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return Outcome();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  CheckNoCapture("an event");
  if (Outcome() != cudaSuccess) return Outcome();
  const Lock lock = LockDevice();
  const auto state = event->state;
  state->stream = stream;
  cuda_emulation::Give(lock, stream, {.run = [state, count = ++state->recorded] {
                         state->done = count;
                         state->time = std::chrono::steady_clock::now();
                       }});
  return Outcome();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (Outcome() != cudaSuccess) return Outcome();
  const Lock lock = LockDevice();
  const CudaEmulationEvent::State& state = *event->state;
  if (state.done < state.recorded) cuda_emulation::Advance(lock, state.stream);
  return state.done < state.recorded ? cudaErrorNotReady : Outcome();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (Outcome() != cudaSuccess) return Outcome();
  Lock lock = LockDevice();
  const CudaEmulationEvent::State& state = *event->state;
  cuda_emulation::WaitUntil(lock, state.stream, [&] { return state.done >= state.recorded; });
  return Outcome();
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (Outcome() != cudaSuccess) return Outcome();
  const Lock lock = LockDevice();
  if (!begin->has_time || !end->has_time) return cudaErrorInvalidValue;
  for (const cudaEvent_t event : {begin, end}) {
    if (event->state->done < event->state->recorded) return cudaErrorNotReady;
  }
  *milliseconds =
      std::chrono::duration<float, std::milli>(end->state->time - begin->state->time).count();
  return Outcome();
}
