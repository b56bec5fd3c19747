// The softmax parts of attention, on a block of scores with a key a row and kQueries queries side
// by side, so that nothing is reduced across a vector. Compiled for AVX2 and for AVX-512, chosen by
// the CPU at run time.

#pragma once

#include <cstdint>

namespace trainyard::cpu {

inline constexpr int64_t kQueries = 32;

// All arrays of kQueries are aligned to 64 bytes.

// A block of scores: keys [0, keys) of it against kQueries queries. Key r is legal for query q when
// r <= first + q; scores of others count as minus infinity.
template <typename A>
struct ScoreBlock {
  A* scores;  // [keys, kQueries]: scores / scale
  int64_t keys;
  int64_t first;
  A scale;  // positive
};

// The running softmax of kQueries queries: of the scores seen so far, the largest, and
// sum exp(score - largest).
template <typename A>
struct SoftmaxState {
  alignas(64) A largest[kQueries];
  alignas(64) A sum[kQueries];
  alignas(64) A shrink[kQueries];  // exp(largest before the last block - largest): what older sums
                                   // must shrink by.
};

// Replaces scores by cap tanh(scale score / cap), and `scale` by 1. Leaves in `slopes`, of the same
// shape, the derivative of each by scale score, unless that is null.
void Cap(ScoreBlock<float>& block, float cap, float* slopes);
void Cap(ScoreBlock<double>& block, double cap, double* slopes);

// Takes a block into `state` and replaces its scores by exp(score - largest).
void SoftmaxForward(const ScoreBlock<float>& block, SoftmaxState<float>& state);
void SoftmaxForward(const ScoreBlock<double>& block, SoftmaxState<double>& state);

// Replaces scores by p = exp(score - lse), and dp = <dout, v> of the same shape by p (dp - delta).
void SoftmaxBackward(const ScoreBlock<float>& block, float* dp, const float* lse,
                     const float* delta);
void SoftmaxBackward(const ScoreBlock<double>& block, double* dp, const double* lse,
                     const double* delta);

}  // namespace trainyard::cpu
