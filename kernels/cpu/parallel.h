// The two ways in which CPU kernels use several threads. Threads divide independent outputs, so no
// result depends on the number of threads.

#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/isa.h"
#include "kernels/device/exec.h"

namespace trainyard::cpu {

// The number of elements of a simple loop that a core processes in about ten microseconds, which is
// the time to wake threads that wait passively. Less work is done by one thread.
inline constexpr int64_t kSerialElements = 16384;

// The body, compiled once for all callers: copies that the compiler inlines into serial and
// parallel code may sum in different orders.
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

// Calls body(begin, end) on disjoint ranges that cover [0, n). `elements` is the work of one item.
// Ranges begin at multiples of `align`, so that two threads do not write to the same cache line.
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

// Calls body(task, thread) once for each task of [0, tasks), on any free thread: for large, uneven
// tasks. `thread` is less than exec.threads, and is the index of the scratch memory to use.
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
