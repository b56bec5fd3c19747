// Proves that synthetic data has the entropy it claims, measured from counts of triples, and that
// its splits differ.

#include "train/data/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "train/data/token_dataset.h"

namespace trainyard {
namespace {

std::vector<int32_t> SyntheticSample(const Dataset& dataset, int64_t index) {
  const auto& tokens = dynamic_cast<const TokenDataset&>(dataset);
  std::vector<int32_t> sample(size_t(tokens.sequence()) + 1);
  EXPECT_TRUE(tokens.ReadSample(index, {.tokens = sample}).ok());
  return sample;
}

// The entropy of the chain with `letters` letters, in nats per token, as the header describes it.
double Entropy(double letters) {
  const auto term = [](double p) { return -p * std::log(p); };
  const double each = 0.1 / letters;
  return term(0.5 + each) + term(0.4 + each) + (letters - 2) * term(each);
}

TEST(Synthetic, HasTheEntropyThatIsDocumented) {
  EXPECT_NEAR(Entropy(32), 1.2526, 5e-5);
  constexpr int64_t kSequence = 1024, kVocab = 8, kSamples = 400;
  const DataSplits splits = SyntheticSplits({}, kSequence, kVocab, 3);
  std::map<std::vector<int32_t>, double> triples, pairs;
  double total = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    const std::vector<int32_t> sample = SyntheticSample(*splits.train, i);
    for (size_t t = 2; t < sample.size(); ++t) {
      ++triples[{sample[t - 2], sample[t - 1], sample[t]}];
      ++pairs[{sample[t - 2], sample[t - 1]}];
      ++total;
    }
  }
  double entropy = 0;
  for (const auto& [triple, count] : triples) {
    const double p = count / pairs[{triple[0], triple[1]}];
    entropy -= count / total * std::log(p);
  }
  // Counted from 4e5 triples: a deviation of the log-probability (about 1.1 nats) over sqrt(4e5),
  // three of them; the bias of the estimate, (8^3 - 8^2) / (2 * 4e5) = 0.0006, is smaller.
  EXPECT_NEAR(entropy, Entropy(kVocab), 3 * 1.1 / std::sqrt(total) + 0.0006);
}

TEST(Synthetic, IsAPureFunctionOfSeedSplitAndIndex) {
  const DataSplits a = SyntheticSplits({}, 16, 100, 1), b = SyntheticSplits({}, 16, 100, 2);
  const std::vector<int32_t> first = SyntheticSample(*a.train, 5);
  EXPECT_EQ(first, SyntheticSample(*a.train, 5));
  EXPECT_NE(first, SyntheticSample(*a.train, 6));
  EXPECT_NE(first, SyntheticSample(*a.validation, 5));
  EXPECT_NE(first, SyntheticSample(*b.train, 5));
}

TEST(Synthetic, KeepsToTinyVocabularies) {
  for (const int64_t vocab : {1, 2, 3, 33}) {
    const DataSplits splits = SyntheticSplits({}, 64, vocab, 1);
    for (const int32_t token : SyntheticSample(*splits.train, 0)) {
      EXPECT_GE(token, 0);
      EXPECT_LT(token, std::min<int64_t>(vocab, 32));
    }
  }
}

TEST(Synthetic, PacksDocumentsOfOneLength) {
  const DataSplits whole = SyntheticSplits({}, 10, 100, 1);
  const DataSplits packs = SyntheticSplits({.document_tokens = 4}, 10, 100, 1);
  std::vector<InputData> read;
  for (const InputSpec& input : packs.train->inputs()) {
    EXPECT_EQ(input.kind, InputSpec::Kind::kInteger);
    read.emplace_back(std::vector<int32_t>());
  }
  ASSERT_EQ(read.size(), 3u);
  ASSERT_TRUE(packs.train->Read({.index = 5}, read).ok());
  EXPECT_EQ(std::get<std::vector<int32_t>>(read[2]),
            (std::vector<int32_t>{0, 0, 0, 0, 4, 4, 4, 4, 8, 8}));
  EXPECT_EQ(SyntheticSample(*packs.train, 5), SyntheticSample(*whole.train, 5));
}

}  // namespace
}  // namespace trainyard
