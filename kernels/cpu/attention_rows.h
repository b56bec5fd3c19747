// The softmax parts of attention, a row of a tile at a time. Compiled for AVX2 and for AVX-512,
// chosen by the CPU at run time.

#pragma once

#include <cstdint>

namespace trainyard::cpu {

// The running softmax of a query row: of the scores seen so far, the largest, and
// sum exp(score - largest).
template <typename A>
struct SoftmaxState {
  A largest;
  A sum;
};

// Takes scores[0 .. valid) into `state` and replaces them by exp(score - largest), zeroes up to
// `n`. Returns exp(old largest - new largest), by which what was summed with the old must be
// multiplied.
float SoftmaxRow(float* scores, int64_t valid, int64_t n, SoftmaxState<float>& state);
double SoftmaxRow(double* scores, int64_t valid, int64_t n, SoftmaxState<double>& state);

// In: scores, and in `dp` <dout, v>. Out: scores becomes p = exp(score - lse), dp becomes
// ds = p (dp - delta); both zero from `valid` up to `n`.
void SoftmaxBackwardRow(float* scores, float* dp, int64_t valid, int64_t n, float lse, float delta);
void SoftmaxBackwardRow(double* scores, double* dp, int64_t valid, int64_t n, double lse,
                        double delta);

}  // namespace trainyard::cpu
