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
  SyntheticDataset(const SyntheticData& source, int64_t sequence, int64_t vocab, uint64_t seed,
                   const char* split)
      : TokenDataset(sequence, vocab, {.reset_attention_mask = source.document_tokens > 0}),
        document_tokens_(source.document_tokens),
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
    for (size_t t = 0; t < out.document_begins.size(); ++t) {
      out.document_begins[t] = int32_t(int64_t(t) / document_tokens_ * document_tokens_);
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

  const int64_t document_tokens_;
  const uint64_t letters_;
  const uint64_t seed_;
  const uint64_t stream_;
};

}  // namespace

DataSplits SyntheticSplits(const SyntheticData& source, int64_t sequence, int64_t vocab,
                           uint64_t seed) {
  const auto split = [&](const char* name) {
    return std::make_unique<SyntheticDataset>(source, sequence, vocab, seed, name);
  };
  return {.train = split("data/train"), .validation = split("data/validation")};
}

const DataSource& SyntheticSource() {
  static const DataSource kSource = {
      .name = "synthetic",
      .example = "synthetic: {}",
      .make = [] { return DataConfig(SyntheticData()); },
      .visit =
          [](DataConfig& data, SourceVisit visit) {
            visit({.name = "document_tokens"}, &data.As<SyntheticData>().document_tokens);
          },
      .facts =
          [](const DataConfig& data) {
            const bool packs = data.As<SyntheticData>().document_tokens > 0;
            return SourceFacts{
                .inputs = DeliveredTokens(), .reset_attention_mask = packs, .packs = packs};
          },
      .open = [](const DataConfig& data, const DataOptions& options) -> absl::StatusOr<DataSplits> {
        return SyntheticSplits(data.As<SyntheticData>(), options.sequence, VocabularyOf(options),
                               options.seed);
      }};
  return kSource;
}

}  // namespace trainyard
