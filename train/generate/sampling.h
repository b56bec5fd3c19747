// How the next token is drawn from a model's logits.

#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace trainyard {

inline constexpr double kMaxTemperature = 100;  // Above, all tokens are about equally likely.

inline constexpr int64_t kMostTopK = 1'000'000;

// The limits apply one after the other, each to the probabilities that the one before has left, as
// in `transformers`. They never leave out the most likely token.
struct Sampling {
  double temperature = 0.8;  // 0: the most likely token; 1: as trained.
  int64_t top_k = 0;         // Only so many of the most likely tokens; 0: all.
  double top_p = 1;          // The fewest tokens that together have at least this probability.
  double min_p = 0;          // Tokens with at least this part of the largest probability.
};

// INVALID_ARGUMENT: a setting is out of range; the message names it and its range.
absl::Status Check(const Sampling& sampling);

// Returns the token that the uniform number `u` draws from softmax(logits / temperature), among
// those that the limits leave. If temperature is 0, returns the most likely token. Of equally
// likely tokens, the first ones count as more likely.
int64_t SampleToken(std::span<const float> logits, const Sampling& sampling, double u);

}  // namespace trainyard
