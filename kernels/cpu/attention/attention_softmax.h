// The softmax of attention, on blocks of scores in which a row is a key and kQueries queries lie
// side by side. So no reduction goes across a vector. Compiled for AVX2 and for AVX-512; the CPU's
// type decides at run time.

#pragma once

#include <cstdint>

namespace trainyard::cpu {

inline constexpr int64_t kQueries = 32;

// All arrays of kQueries elements must be aligned to 64 bytes.

// A block of scores: its keys [0, keys) by kQueries queries. Query q sees key r if r <= first + q;
// other scores count as minus infinity.
template <typename A>
struct ScoreBlock {
  A* scores;  // [keys, kQueries]: scores / scale
  int64_t keys;
  int64_t first;
  A scale;  // positive
};

// The running softmax of kQueries queries: the largest score so far, and sum exp(score - largest).
template <typename A>
struct SoftmaxState {
  alignas(64) A largest[kQueries];
  alignas(64) A sum[kQueries];
  alignas(64) A shrink[kQueries];  // exp(largest before this block - largest): scales older sums
};

// Applies a soft cap to the scores, and sets `scale` to 1. `slopes` gets the derivatives of the new
// scores by scale * score, unless it is null; it has the shape of the scores.
//
//   score <- cap tanh(scale score / cap)
//   slope  = 1 - tanh(scale score / cap)^2
void Cap(ScoreBlock<float>& block, float cap, float* slopes);
void Cap(ScoreBlock<double>& block, double cap, double* slopes);

// Adds a block to `state` and replaces its scores by exp(score - largest).
void SoftmaxForward(const ScoreBlock<float>& block, SoftmaxState<float>& state);
void SoftmaxForward(const ScoreBlock<double>& block, SoftmaxState<double>& state);

// Replaces the scores and dp = <dout, v>, which have the same shape:
//
//   score <- p = exp(score - lse)
//   dp    <- p (dp - delta)
void SoftmaxBackward(const ScoreBlock<float>& block, float* dp, const float* lse,
                     const float* delta);
void SoftmaxBackward(const ScoreBlock<double>& block, double* dp, const double* lse,
                     const double* delta);

}  // namespace trainyard::cpu
