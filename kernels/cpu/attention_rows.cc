#include "kernels/cpu/attention_rows.h"

#include <algorithm>

#include "kernels/cpu/math.h"

namespace trainyard::cpu {
namespace {

template <typename A>
[[gnu::always_inline]] inline A Forward(A* scores, int64_t valid, int64_t n,
                                        SoftmaxState<A>& state) {
  A largest = state.largest;
#pragma omp simd reduction(max : largest)
  for (int64_t j = 0; j < valid; ++j) largest = scores[j] > largest ? scores[j] : largest;
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < valid; ++j) {
    const A p = Exp(scores[j] - largest);
    scores[j] = p;
    sum += p;
  }
  std::fill(scores + valid, scores + n, A(0));
  const A shrink = Exp(state.largest - largest);
  state = {largest, state.sum * shrink + sum};
  return shrink;
}

template <typename A>
[[gnu::always_inline]] inline void Backward(A* scores, A* dp, int64_t valid, int64_t n, A lse,
                                            A delta) {
#pragma omp simd
  for (int64_t j = 0; j < valid; ++j) {
    const A p = Exp(scores[j] - lse);
    scores[j] = p;
    dp[j] = p * (dp[j] - delta);
  }
  std::fill(scores + valid, scores + n, A(0));
  std::fill(dp + valid, dp + n, A(0));
}

#define TRAINYARD_AVX512 \
  [[gnu::target("avx512f,avx512dq,avx512vl,avx512bw,prefer-vector-width=512")]]

TRAINYARD_AVX512 float Forward512(float* scores, int64_t valid, int64_t n,
                                  SoftmaxState<float>& state) {
  return Forward(scores, valid, n, state);
}

TRAINYARD_AVX512 void Backward512(float* scores, float* dp, int64_t valid, int64_t n, float lse,
                                  float delta) {
  Backward(scores, dp, valid, n, lse, delta);
}

bool HasAvx512() {
  return __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

}  // namespace

float SoftmaxRow(float* scores, int64_t valid, int64_t n, SoftmaxState<float>& state) {
  return HasAvx512() ? Forward512(scores, valid, n, state) : Forward(scores, valid, n, state);
}
double SoftmaxRow(double* scores, int64_t valid, int64_t n, SoftmaxState<double>& state) {
  return Forward(scores, valid, n, state);
}
void SoftmaxBackwardRow(float* scores, float* dp, int64_t valid, int64_t n, float lse,
                        float delta) {
  HasAvx512() ? Backward512(scores, dp, valid, n, lse, delta)
              : Backward(scores, dp, valid, n, lse, delta);
}
void SoftmaxBackwardRow(double* scores, double* dp, int64_t valid, int64_t n, double lse,
                        double delta) {
  Backward(scores, dp, valid, n, lse, delta);
}

}  // namespace trainyard::cpu
