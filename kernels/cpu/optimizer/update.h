// The parts that the updates of all optimizers share: threads, chunks, the compute copy and the
// sums of words.

#pragma once

#include <algorithm>
#include <cstdint>

#include "common/mutex.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device/step_state.h"
#include "kernels/device/tensor.h"

namespace trainyard::cpu {

inline void Add(const WordSums& part, WordSums& sums) {
  sums.master += part.master;
  sums.m += part.m;
  sums.v += part.v;
}

// Calls update(begin, end, read, written) on ranges that cover all masters, of type A. After each
// call, writes the range's compute copy, of type T, if there is one. The call must add the words
// that it reads and writes to `read` and `written`; their sums are added to the state.
template <typename A, typename T, typename Update>
void UpdateMasters(const Exec& exec, const Tensor& master, const Tensor& compute, StepState& state,
                   const Update& update) {
  constexpr int64_t kChunk = 4096;  // Small enough that the copy finds the weights in the cache.
  Mutex mutex;                      // Guards the sums in the state.
  ParallelElements(exec, master.elements(), [&](int64_t begin, int64_t end) {
    const A* const masters = master.as<A>();
    T* const copy = compute.data != nullptr ? compute.as<T>() : nullptr;
    WordSums read, written;
    for (int64_t first = begin; first < end; first += kChunk) {
      const int64_t last = std::min(end, first + kChunk);
      update(first, last, read, written);
      if (copy == nullptr) continue;
#pragma omp simd
      for (int64_t i = first; i < last; ++i) copy[i] = T(Accumulate<T>(masters[i]));
    }
    const MutexLock lock(mutex);
    Add(read, state.read);
    Add(written, state.written);
  });
}

// Calls f.operator()<A, T>() with the types of the masters and of the compute copy.
template <typename F>
void DispatchUpdate(const Tensor& master, const Tensor& compute, F&& f) {
  const bool bf16_copy = compute.data != nullptr && compute.dtype == DType::kBF16;
  if (master.dtype == DType::kF64) {
    bf16_copy ? f.template operator()<double, bf16>() : f.template operator()<double, double>();
  } else {
    bf16_copy ? f.template operator()<float, bf16>() : f.template operator()<float, float>();
  }
}

}  // namespace trainyard::cpu
