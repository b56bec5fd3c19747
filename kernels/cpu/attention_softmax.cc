#include "kernels/cpu/attention_softmax.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/math.h"

namespace trainyard::cpu {
namespace {

template <typename A>
[[gnu::always_inline]] inline void Mask(const ScoreBlock<A>& block) {
  for (int64_t r = std::max<int64_t>(0, block.first + 1); r < block.keys; ++r) {
    const int64_t legal = std::min(kQueries, r - block.first);
    std::fill_n(block.scores + r * kQueries, legal, -std::numeric_limits<A>::infinity());
  }
}

template <typename A>
[[gnu::always_inline]] inline void Forward(const ScoreBlock<A>& block, SoftmaxState<A>& state) {
  Mask(block);
  A largest[kQueries], sum[kQueries] = {};
  std::copy_n(state.largest, kQueries, largest);
  for (int64_t r = 0; r < block.keys; ++r) {
    const A* row = block.scores + r * kQueries;
#pragma omp simd
    for (int64_t q = 0; q < kQueries; ++q) largest[q] = row[q] > largest[q] ? row[q] : largest[q];
  }
  for (int64_t r = 0; r < block.keys; ++r) {
    A* row = block.scores + r * kQueries;
#pragma omp simd
    for (int64_t q = 0; q < kQueries; ++q) {
      const A p = Exp(row[q] - largest[q]);
      row[q] = p;
      sum[q] += p;
    }
  }
#pragma omp simd
  for (int64_t q = 0; q < kQueries; ++q) {
    state.shrink[q] = Exp(state.largest[q] - largest[q]);
    state.sum[q] = state.sum[q] * state.shrink[q] + sum[q];
    state.largest[q] = largest[q];
  }
}

template <typename A>
[[gnu::always_inline]] inline void Backward(const ScoreBlock<A>& block, A* dp, const A* lse,
                                            const A* delta) {
  Mask(block);
  for (int64_t r = 0; r < block.keys; ++r) {
    A* row = block.scores + r * kQueries;
    A* drow = dp + r * kQueries;
#pragma omp simd
    for (int64_t q = 0; q < kQueries; ++q) {
      const A p = Exp(row[q] - lse[q]);
      row[q] = p;
      drow[q] = p * (drow[q] - delta[q]);
    }
  }
}

TRAINYARD_AVX512 void Forward512(const ScoreBlock<float>& block, SoftmaxState<float>& state) {
  Forward(block, state);
}

TRAINYARD_AVX512 void Backward512(const ScoreBlock<float>& block, float* dp, const float* lse,
                                  const float* delta) {
  Backward(block, dp, lse, delta);
}

}  // namespace

void SoftmaxForward(const ScoreBlock<float>& block, SoftmaxState<float>& state) {
  HasAvx512() ? Forward512(block, state) : Forward(block, state);
}
void SoftmaxForward(const ScoreBlock<double>& block, SoftmaxState<double>& state) {
  Forward(block, state);
}
void SoftmaxBackward(const ScoreBlock<float>& block, float* dp, const float* lse,
                     const float* delta) {
  HasAvx512() ? Backward512(block, dp, lse, delta) : Backward(block, dp, lse, delta);
}
void SoftmaxBackward(const ScoreBlock<double>& block, double* dp, const double* lse,
                     const double* delta) {
  Backward(block, dp, lse, delta);
}

}  // namespace trainyard::cpu
