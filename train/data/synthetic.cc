#include "train/data/synthetic.h"

#include <algorithm>

#include "common/rng.h"
#include "train/data/token_dataset.h"

namespace trainyard {
namespace {

constexpr int64_t kMaxLetters = 32;
constexpr int64_t kSyntheticSamples = int64_t{1} << 40;
constexpr double kFirst = 0.5, kSecond = 0.4, kNoise = 0.1;

class SyntheticDataset final : public TokenDataset {
 public:
  SyntheticDataset(int64_t sequence, int64_t vocab, uint64_t seed, const char* split)
      : TokenDataset(sequence, vocab),
        letters_(uint64_t(std::min(vocab, kMaxLetters))),
        seed_(seed),
        stream_(HashName(split)) {}

  int64_t num_samples() const override { return kSyntheticSamples; }

  absl::Status ReadSample(int64_t index, const TokenSample& out) const override {
    const uint64_t base = RandomBits(seed_, stream_, uint64_t(index));
    uint64_t a = 0, b = 0;
    for (size_t t = 0; t < out.tokens.size(); ++t) {
      // The two letters before the sample are as random as the noise.
      if (t == 0) {
        a = RandomBits(base, 1, 0) % letters_;
        b = RandomBits(base, 2, 0) % letters_;
      }
      const uint64_t next = Next(a, b, base, t);
      out.tokens[t] = int32_t(next);
      a = b;
      b = next;
    }
    return absl::OkStatus();
  }

 private:
  uint64_t Next(uint64_t a, uint64_t b, uint64_t base, uint64_t t) const {
    const double u = Uniform(base, 3, t);
    if (letters_ == 1 || u < kNoise) return RandomBits(base, 4, t) % letters_;
    const uint64_t first = RandomBits(seed_, HashName("data/first"), b) % letters_;
    if (u < kNoise + kFirst) return first;
    // The second follower is never the first one, so that the entropy is the same after every pair.
    const uint64_t other =
        RandomBits(seed_, HashName("data/second"), a * letters_ + b) % (letters_ - 1);
    return (first + 1 + other) % letters_;
  }

  const uint64_t letters_;
  const uint64_t seed_;
  const uint64_t stream_;
};

}  // namespace

DataSplits SyntheticSplits(int64_t sequence, int64_t vocab, uint64_t seed) {
  return {
      .train = std::make_unique<SyntheticDataset>(sequence, vocab, seed, "data/train"),
      .validation = std::make_unique<SyntheticDataset>(sequence, vocab, seed, "data/validation")};
}

const DataSource& SyntheticSource() {
  static const DataSource kSource = {
      .name = "synthetic",
      .example = "synthetic: {}",
      .make = [] { return DataConfig(SyntheticData()); },
      .visit = [](DataConfig&, SourceVisit) {},
      .facts = [](const DataConfig&) { return SourceFacts{.inputs = DeliveredTokens()}; },
      .open = [](const DataConfig&, const DataOptions& options) -> absl::StatusOr<DataSplits> {
        return SyntheticSplits(options.sequence, VocabularyOf(options), options.seed);
      }};
  return kSource;
}

}  // namespace trainyard
