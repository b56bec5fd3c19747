// The two ways in which CPU kernels use several threads. Work is split over independent outputs, so
// that no result depends on the number of threads.

#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/isa.h"
#include "kernels/device/exec.h"

namespace trainyard::cpu {

// Waking threads that wait passively costs some ten microseconds: what a core does meanwhile, in
// elements of a simple loop.
inline constexpr int64_t kSerialElements = 16384;

// The body, compiled once for all callers: copies that the compiler inlines into serial and
// parallel code may order their sums differently.
template <typename Body>
[[gnu::noipa, gnu::flatten]] void CallRangeAvx2(const Body& body, int64_t begin, int64_t end) {
  body(begin, end);
}
template <typename Body>
[[gnu::noipa, gnu::flatten]] TRAINYARD_AVX512 void CallRangeAvx512(const Body& body, int64_t begin,
                                                                   int64_t end) {
  body(begin, end);
}
template <typename Body>
void CallRange(const Body& body, int64_t begin, int64_t end) {
  HasAvx512() ? CallRangeAvx512(body, begin, end) : CallRangeAvx2(body, begin, end);
}

// Calls body(begin, end) on disjoint ranges that cover [0, n); `elements` is the work of one item.
// Ranges begin at multiples of `align`, which keeps threads out of each other's cache lines.
template <typename Body>
void ParallelRanges(const Exec& exec, int64_t n, int64_t elements, int64_t align,
                    const Body& body) {
  const int64_t units = (n + align - 1) / align;
  const int threads = int(std::min<int64_t>(exec.threads, units));
  if (threads <= 1 || n * elements < kSerialElements) {
    if (n > 0) CallRange(body, 0, n);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int i = 0; i < threads; ++i) {
    const int64_t begin = units * i / threads * align;
    const int64_t end = std::min(n, units * (i + 1) / threads * align);
    if (begin < end) CallRange(body, begin, end);
  }
}

template <typename Body>
void ParallelRows(const Exec& exec, int64_t rows, int64_t elements, const Body& body) {
  ParallelRanges(exec, rows, elements, 1, body);
}

template <typename Body>
void ParallelElements(const Exec& exec, int64_t n, const Body& body) {
  ParallelRanges(exec, n, 1, 64, body);
}

template <typename Body>
[[gnu::noipa]] void CallTask(const Body& body, int64_t task, int thread) {
  body(task, thread);
}

// Calls body(task, thread) once for each of [0, tasks), whichever thread is free: for large, uneven
// tasks. `thread` is below exec.threads, and names the scratch to use.
template <typename Body>
void ParallelTasks(const Exec& exec, int64_t tasks, const Body& body) {
  const int threads = int(std::min<int64_t>(exec.threads, tasks));
  if (threads <= 1) {
    for (int64_t task = 0; task < tasks; ++task) CallTask(body, task, 0);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int64_t task = 0; task < tasks; ++task) CallTask(body, task, omp_get_thread_num());
}

}  // namespace trainyard::cpu
