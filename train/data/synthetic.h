// Seeded tokens that a model can learn something from, without a file: a noisy Markov chain of
// order two.
//
// With K = min(vocab, 32) letters, every pair of letters (a, b) has two followers that the seed
// decides: the first depends on b alone and comes with probability 0.5, the second on both with
// 0.4; else (0.1) any of the K letters. So a model first learns the letters (loss ln K), then
// pairs, then triples, down to SyntheticEntropy: 1.2526 nats for K = 32.

#pragma once

#include <cstdint>
#include <memory>

#include "train/data/dataset.h"

namespace trainyard {

// Nats per token of the chain: what the loss of a perfect model tends to.
double SyntheticEntropy(int64_t vocab);

// Validation is another stretch of the same chain. Both are practically endless.
DataSplits SyntheticSplits(int64_t sequence, int64_t vocab, uint64_t seed);

}  // namespace trainyard
