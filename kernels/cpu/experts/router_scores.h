// The scores of experts, shared by the router (router.h) and the auxiliary loss (load_balance.h).

#pragma once

#include "kernels/cpu/context.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"
#include "kernels/experts/router.h"

namespace trainyard::cpu {

// Computes s[e] of one token: softmax or sigmoid of its logits.
template <typename A>
void RouterScores(RouterScoring scoring, const A* logits, int64_t experts, A* s) {
  if (scoring == RouterScoring::kSigmoid) {
#pragma omp simd
    for (int64_t e = 0; e < experts; ++e) s[e] = Sigmoid(logits[e]);
    return;
  }
  A largest = logits[0], sum = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t e = 0; e < experts; ++e) largest = logits[e] > largest ? logits[e] : largest;
#pragma omp simd reduction(+ : sum)
  for (int64_t e = 0; e < experts; ++e) sum += s[e] = Exp(logits[e] - largest);
  const A inverse = A(1) / sum;
#pragma omp simd
  for (int64_t e = 0; e < experts; ++e) s[e] *= inverse;
}

// Calls body(t, scratch) for each token, with scratch memory for `elements` of A. Uses one thread
// if there is little work.
template <typename A, typename Body>
void ForEachToken(Exec& exec, int64_t tokens, int64_t elements, const Body& body) {
  constexpr int64_t kRun = 64;
  Context& context = ContextOf(exec);
  const Exec one = {.threads = 1};
  const bool few = tokens * elements < kSerialElements;
  ParallelTasks(few ? one : exec, (tokens + kRun - 1) / kRun, [&](int64_t run, int thread) {
    const size_t bytes = size_t(elements) * sizeof(A);
    A* scratch = reinterpret_cast<A*>(context.scratch[size_t(thread)].Reserve(bytes));
    const int64_t end = std::min(tokens, (run + 1) * kRun);
    for (int64_t t = run * kRun; t < end; ++t) body(t, scratch);
  });
}

}  // namespace trainyard::cpu
