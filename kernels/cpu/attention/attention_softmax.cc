#include "kernels/cpu/attention/attention_softmax.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/math.h"

namespace trainyard::cpu {
namespace {

// Vectors of neighbouring queries. The running values over keys stay in registers.
struct Floats8 {
  using Vector [[gnu::vector_size(32)]] = float;
  using Bits [[gnu::vector_size(32)]] = uint32_t;
  [[gnu::always_inline]] static void Exp(Vector& x) { ReplaceByExp<Vector, Bits>(x); }
};

struct Floats16 {
  using Vector [[gnu::vector_size(64)]] = float;
  using Bits [[gnu::vector_size(64)]] = uint32_t;
  [[gnu::always_inline]] static void Exp(Vector& x) { ReplaceByExp<Vector, Bits>(x); }
};

struct OneDouble {
  using Vector = double;
  static void Exp(Vector& x) { x = cpu::Exp(x); }
};

template <typename A>
constexpr A kInfinity = std::numeric_limits<A>::infinity();

template <typename A>
[[gnu::always_inline]] inline void Mask(const ScoreBlock<A>& block) {
  for (int64_t r = std::max<int64_t>(0, block.first + 1); r < block.keys; ++r) {
    const int64_t illegal = std::min(kQueries, r - block.first);
    std::fill_n(block.scores + r * kQueries, illegal, -kInfinity<A>);
  }
}

template <typename Lanes, typename A>
[[gnu::always_inline]] inline void Forward(const ScoreBlock<A>& block, SoftmaxState<A>& state) {
  using Vector = typename Lanes::Vector;
  Mask(block);
  for (int64_t q = 0; q < kQueries; q += sizeof(Vector) / sizeof(A)) {
    auto& state_largest = reinterpret_cast<Vector&>(state.largest[q]);
    auto& state_sum = reinterpret_cast<Vector&>(state.sum[q]);
    Vector largest = state_largest, sum = {};
    for (int64_t r = 0; r < block.keys; ++r) {
      const Vector score = reinterpret_cast<Vector&>(block.scores[r * kQueries + q]) * block.scale;
      largest = score > largest ? score : largest;
    }
    // If a query has seen nothing, -infinity - -infinity would be NaN.
    const Vector base = largest == -kInfinity<A> ? Vector{} : largest;
    for (int64_t r = 0; r < block.keys; ++r) {
      auto& score = reinterpret_cast<Vector&>(block.scores[r * kQueries + q]);
      Vector p = score * block.scale - base;
      Lanes::Exp(p);
      score = p;
      sum += p;
    }
    Vector shrink = state_largest - base;
    Lanes::Exp(shrink);
    reinterpret_cast<Vector&>(state.shrink[q]) = shrink;
    state_sum = state_sum * shrink + sum;
    state_largest = largest;
  }
}

template <typename Lanes, typename A>
[[gnu::always_inline]] inline void Backward(const ScoreBlock<A>& block, A* dp, const A* lse,
                                            const A* delta) {
  using Vector = typename Lanes::Vector;
  Mask(block);
  for (int64_t q = 0; q < kQueries; q += sizeof(Vector) / sizeof(A)) {
    const auto lse_q = reinterpret_cast<const Vector&>(lse[q]);
    const auto delta_q = reinterpret_cast<const Vector&>(delta[q]);
    for (int64_t r = 0; r < block.keys; ++r) {
      auto& score = reinterpret_cast<Vector&>(block.scores[r * kQueries + q]);
      auto& dp_rq = reinterpret_cast<Vector&>(dp[r * kQueries + q]);
      Vector p = score * block.scale - lse_q;
      Lanes::Exp(p);
      score = p;
      dp_rq = p * (dp_rq - delta_q);
    }
  }
}

template <typename A>
void CapScores(ScoreBlock<A>& block, A cap, A* slopes) {
  const A inner = block.scale / cap;
  A* const scores = block.scores;
  for (int64_t n = 0; n < block.keys * kQueries; n += kQueries) {
    A ratios[kQueries];
#pragma omp simd
    for (int64_t q = 0; q < kQueries; ++q) {
      ratios[q] = Tanh(scores[n + q] * inner);
      scores[n + q] = cap * ratios[q];
    }
    if (slopes == nullptr) continue;
#pragma omp simd
    for (int64_t q = 0; q < kQueries; ++q) slopes[n + q] = A(1) - ratios[q] * ratios[q];
  }
  block.scale = 1;
}

void Forward256(const ScoreBlock<float>& block, SoftmaxState<float>& state) {
  Forward<Floats8>(block, state);
}
TRAINYARD_AVX512 void Forward512(const ScoreBlock<float>& block, SoftmaxState<float>& state) {
  Forward<Floats16>(block, state);
}

void Backward256(const ScoreBlock<float>& block, float* dp, const float* lse, const float* delta) {
  Backward<Floats8>(block, dp, lse, delta);
}
TRAINYARD_AVX512 void Backward512(const ScoreBlock<float>& block, float* dp, const float* lse,
                                  const float* delta) {
  Backward<Floats16>(block, dp, lse, delta);
}

}  // namespace

void Cap(ScoreBlock<float>& block, float cap, float* slopes) { CapScores(block, cap, slopes); }
void Cap(ScoreBlock<double>& block, double cap, double* slopes) { CapScores(block, cap, slopes); }

void SoftmaxForward(const ScoreBlock<float>& block, SoftmaxState<float>& state) {
  HasAvx512() ? Forward512(block, state) : Forward256(block, state);
}
void SoftmaxForward(const ScoreBlock<double>& block, SoftmaxState<double>& state) {
  Forward<OneDouble>(block, state);
}
void SoftmaxBackward(const ScoreBlock<float>& block, float* dp, const float* lse,
                     const float* delta) {
  HasAvx512() ? Backward512(block, dp, lse, delta) : Backward256(block, dp, lse, delta);
}
void SoftmaxBackward(const ScoreBlock<double>& block, double* dp, const double* lse,
                     const double* delta) {
  Backward<OneDouble>(block, dp, lse, delta);
}

}  // namespace trainyard::cpu
