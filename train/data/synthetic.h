// Makes tokens from a seed, without a file. A model can learn from the tokens: they are a noisy
// Markov chain of order two.
//
// There are K = min(vocab, 32) letters. The seed decides two followers of every pair of letters
// (a, b). The first follower depends on b alone and comes with probability 0.5. The second follower
// depends on a and b and comes with probability 0.4. With the remaining probability 0.1, any of the
// K letters comes. So a model first learns the letters (loss ln K), then pairs, then triples. The
// loss falls towards the entropy of the chain, 1.2526 nats a token for K = 32.
//
// Samples may be packs of documents of equal length, within which attention stays. They cost what
// packs of such documents cost.

#pragma once

#include <cstdint>
#include <memory>

#include "train/data/dataset.h"

namespace trainyard {

struct SyntheticData {
  int64_t document_tokens = 0;  // Of each document but a sample's last. 0: a sample is not a pack.
  static const DataSource& Source() { return SyntheticSource(); }
};

// The two splits are samples of the same chain, with different random numbers. Each split has 2^40
// samples, which no training job uses up.
DataSplits SyntheticSplits(const SyntheticData& source, int64_t sequence, int64_t vocab,
                           uint64_t seed);

}  // namespace trainyard
