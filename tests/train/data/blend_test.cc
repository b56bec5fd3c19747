// Proves that blended datasets keep their shares in every prefix, use every token once an epoch,
// keep documents whole, and depend on the seed and the samples consumed alone. The corpora are
// written here: each token of the indexed ones says its document and its place there.

#include "train/data/blend.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/rng.h"
#include "models/language_model.h"
#include "train/data/batch_reader.h"
#include "train/data/blend_order.h"
#include "train/data/shuffled_documents.h"
#include "train/tools/indexed_writer.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<BlendOrder::Choice> First(const BlendOrder& order, int64_t count) {
  std::vector<BlendOrder::Choice> choices;
  for (int64_t i = 0; i < count; ++i) choices.push_back(order.At(i));
  return choices;
}

// Weights of one size and of very different ones. Catches the rule that takes the dataset which
// lags behind most: it misses by more than one sample.
TEST(BlendOrder, EveryPrefixHasEachShareWithinOneSample) {
  for (uint64_t trial = 0; trial < 60; ++trial) {
    const size_t datasets = 1 + trial % 12;
    std::vector<double> weights;
    for (size_t d = 0; d < datasets; ++d) {
      weights.push_back(std::exp((trial % 2 == 0 ? 0.5 : 3) * Normal(7, trial, d)));
    }
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const BlendOrder order(weights);
    std::vector<double> counts(datasets);
    for (int64_t n = 1; n <= 5000; ++n) {
      const BlendOrder::Choice choice = order.At(n - 1);
      double& count = counts[size_t(choice.dataset)];
      ASSERT_EQ(choice.sample, int64_t(count)) << n;
      ++count;
      for (size_t d = 0; d < datasets; ++d) {
        ASSERT_LT(std::abs(counts[d] - weights[d] / sum * double(n)), 1 + 1e-6)
            << "trial " << trial << ", dataset " << d << " of " << datasets << ", prefix " << n;
      }
    }
  }
}

TEST(BlendOrder, IsTheSameFromAnySampleOn) {
  const std::vector<double> weights = {5, 1, 0.25};
  const std::vector<BlendOrder::Choice> whole = First(BlendOrder(weights), 20'000);
  const BlendOrder order(weights);
  for (const int64_t sample : {19'999, 3, 12'288, 12'287, 4'096, 0, 8'191, 19'000, 4'095}) {
    EXPECT_EQ(order.At(sample), whole[size_t(sample)]) << sample;
  }
  EXPECT_EQ(First(BlendOrder({2, 2}), 4),
            (std::vector<BlendOrder::Choice>{{0, 0}, {1, 0}, {0, 1}, {1, 1}}));
}

// Documents of these lengths; token 100 d + i is number i of document d.
class CountedDocuments final : public TokenStream {
 public:
  explicit CountedDocuments(const std::vector<int64_t>& lengths) : starts_(1) {
    for (const int64_t length : lengths) starts_.push_back(starts_.back() + length);
  }
  int64_t num_tokens() const override { return starts_.back(); }
  int64_t vocab() const override { return 1 << 20; }
  IndexDType dtype() const override { return IndexDType::kInt32; }
  int64_t num_documents() const override { return int64_t(starts_.size()) - 1; }
  absl::Status ReadDocumentStarts(int64_t first, std::span<int64_t> out) const override {
    ++reads_;
    std::copy_n(starts_.begin() + first, out.size(), out.begin());
    return absl::OkStatus();
  }
  absl::Status Read(int64_t first, std::span<int32_t> out) const override {
    for (size_t i = 0; i < out.size(); ++i) out[i] = Token(first + int64_t(i));
    return absl::OkStatus();
  }

  int32_t Token(int64_t at) const {
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), at);
    return int32_t(100 * (after - starts_.begin() - 1) + at - *(after - 1));
  }
  int64_t reads() const { return reads_; }  // Of the index.

 private:
  std::vector<int64_t> starts_;
  mutable int64_t reads_ = 0;
};

// 150 documents of 0 to 10 tokens. The tokens of the part that is used, [30, end), are 84 x 8.
constexpr int64_t kBlendSequence = 8, kBegin = 30, kEnd = kBegin + 84 * kBlendSequence;
std::shared_ptr<const CountedDocuments> SomeDocuments() {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 150; ++i) lengths.push_back(i * 7 % 11);
  return std::make_shared<CountedDocuments>(lengths);
}
ShuffledDocuments SomeShuffled(uint64_t key, int64_t end = kEnd) {
  return ShuffledDocuments({.stream = SomeDocuments(), .file = "some", .begin = kBegin, .end = end},
                           kBlendSequence, key);
}
std::vector<int32_t> SampleOf(const ShuffledDocuments& documents, int64_t sample) {
  std::vector<int32_t> tokens(kBlendSequence + 1);
  const absl::Status status = documents.Read(sample, {.tokens = tokens});
  EXPECT_TRUE(status.ok()) << status;
  return tokens;
}

// The part is not a multiple of a sequence: some samples reach into the next epoch.
TEST(ShuffledDocuments, EveryTokenIsUsedOnceAnEpoch) {
  const std::shared_ptr<const CountedDocuments> source = SomeDocuments();
  for (const int64_t end : {kEnd, kEnd - 1, kEnd - 6}) {
    const ShuffledDocuments documents = SomeShuffled(3, end);
    // As many samples as use every token eight times.
    std::map<int32_t, int> uses;
    for (int64_t i = 0; i < end - kBegin; ++i) {
      const std::vector<int32_t> sample = SampleOf(documents, i);
      for (int64_t t = 0; t < kBlendSequence; ++t) ++uses[sample[size_t(t)]];
    }
    EXPECT_EQ(uses.size(), size_t(end - kBegin));
    for (const auto& [token, count] : uses) ASSERT_EQ(count, kBlendSequence) << token;
    EXPECT_EQ(uses.begin()->first, source->Token(kBegin));
    EXPECT_EQ(uses.rbegin()->first, source->Token(end - 1));
  }
}

// The order of documents and that of samples: a token is followed by the next of its document, or,
// at the end of the document, by the first of another.
TEST(ShuffledDocuments, KeepsDocumentsWholeInANewOrderEachEpoch) {
  const std::shared_ptr<const CountedDocuments> source = SomeDocuments();
  const int32_t first = source->Token(kBegin), last = source->Token(kEnd - 1);
  const ShuffledDocuments documents = SomeShuffled(3);
  std::vector<std::map<int32_t, int32_t>> followers(3);  // Of the documents' last tokens, by epoch.
  std::vector<std::vector<std::vector<int32_t>>> samples(3);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    for (int64_t i = 0; i < 84; ++i) {
      samples[size_t(epoch)].push_back(SampleOf(documents, 84 * epoch + i));
      const std::vector<int32_t>& sample = samples[size_t(epoch)].back();
      for (size_t t = 0; t + 1 < sample.size(); ++t) {
        if (sample[t + 1] == sample[t] + 1) continue;
        const int64_t length = sample[t] / 100 * 7 % 11;
        EXPECT_TRUE(sample[t] % 100 == length - 1 || sample[t] == last) << sample[t];
        EXPECT_TRUE(sample[t + 1] % 100 == 0 || sample[t + 1] == first) << sample[t + 1];
        followers[size_t(epoch)][sample[t]] = sample[t + 1];
      }
    }
    EXPECT_GT(followers[size_t(epoch)].size(), 100u);
  }
  EXPECT_NE(followers[0], followers[1]);
  EXPECT_NE(followers[1], followers[2]);
  // In the order of the documents, the last token of most samples would begin the next sample.
  int neighbours = 0;
  for (size_t i = 0; i + 1 < 84; ++i) {
    neighbours += samples[0][i].back() == samples[0][i + 1].front() ? 1 : 0;
  }
  EXPECT_LT(neighbours, 10);
  EXPECT_NE(SampleOf(SomeShuffled(4), 0), samples[0][0]);
}

// The data of jobs that began with an earlier release do not change.
TEST(ShuffledDocuments, TheOrderStays) {
  EXPECT_THAT(SampleOf(SomeShuffled(3), 0),
              ElementsAre(5802, 5803, 5804, 5805, 5806, 5807, 5808, 5809, 4100));
  EXPECT_THAT(SampleOf(SomeShuffled(3, kEnd - 1), 1000),
              ElementsAre(11606, 11607, 11608, 1600, 1601, 9300, 9301, 11500, 11501));
}

// To skip the places of documents outside of a part would take 500 reads for a document here.
TEST(ShuffledDocuments, ASampleOfASmallPartTakesFewReads) {
  const auto source = std::make_shared<CountedDocuments>(std::vector<int64_t>(20'000, 4));
  const int64_t tokens = source->num_tokens();
  const ShuffledDocuments documents(
      {.stream = source, .file = "some", .begin = tokens - 160, .end = tokens}, kBlendSequence, 3);
  for (int64_t i = 0; i < 20; ++i) {
    const int64_t before = source->reads();
    for (const int32_t token : SampleOf(documents, i)) EXPECT_GE(token, 100 * (20'000 - 40));
    // The index once for an epoch, and the documents of 64 places.
    EXPECT_LE(source->reads() - before, 2 * 20 + 64) << i;
  }
}

TEST(ShuffledDocuments, BeginsAreThoseOfTheDocumentsInASample) {
  const ShuffledDocuments documents = SomeShuffled(3);
  for (int64_t i = 0; i < 200; ++i) {
    std::vector<int32_t> sample(kBlendSequence + 1), begins(sample.size()), want(sample.size());
    ASSERT_TRUE(documents.Read(i, {.tokens = sample, .document_begins = begins}).ok());
    EXPECT_EQ(sample, SampleOf(documents, i));
    for (size_t t = 1; t < want.size(); ++t) {
      want[t] = sample[t] == sample[t - 1] + 1 ? want[t - 1] : int32_t(t);
    }
    EXPECT_EQ(begins, want) << i;
  }
}

class BlendTest : public ::testing::Test {
 protected:
  BlendTest() : directory_(::testing::TempDir() + "/blend") {
    EXPECT_TRUE(RemoveTree(directory_).ok());
    EXPECT_TRUE(MakeDirectories(directory_).ok());
    WriteCorpus("a", 40, 1000);
    WriteCorpus("b", 90, 20'000);
  }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  static int LengthOf(int document) { return 1 + document * 5 % 9; }
  // Documents of 1 to 9 tokens, which count from `token` on.
  void WriteCorpus(const std::string& name, int documents, int32_t token,
                   IndexDType dtype = IndexDType::kUint16) const {
    auto writer = IndexedWriter::Create(Path(name), dtype);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (int d = 0; d < documents; ++d) {
      std::vector<int32_t> tokens(size_t(LengthOf(d)));
      for (int32_t& one : tokens) one = token++;
      ASSERT_TRUE((*writer)->AddDocument(tokens).ok());
    }
    ASSERT_TRUE((*writer)->Finish().ok());
  }
  absl::StatusOr<DataSplits> Open(const BlendData& blend, uint64_t seed = 5) const {
    return OpenData({.source = blend,
                     .inputs = TokenInputs(65536),
                     .sequence = kBlendSequence,
                     .seed = seed,
                     .roots = Roots({directory_})});
  }
  std::string Refusal(const BlendData& blend) const {
    return std::string(Open(blend).status().message());
  }
  static BlendData TwoCorpora(double validation = 0, bool documents = false) {
    return {.datasets = {{3, "a", ""}, {1, "b", ""}},
            .validation_fraction = validation,
            .reset_attention_mask = documents};
  }

  const std::string directory_;
};

using Batches = std::vector<MicroBatchData>;
// The micro-batches of all ranks in `steps` steps from `position` on, in the order of the samples.
Batches Read(const Dataset& data, int64_t position, int64_t steps, int64_t ranks) {
  Batches batches;
  for (int64_t at = position; at < position + 8 * steps; at += 8) {
    for (int64_t m = 0; m < 8 / ranks; ++m) {
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const BatchReader reader(
            data, SampleOrder::kShuffled, 5,
            {.global = 8, .micro = 1, .data_parallel = ranks, .data_rank = rank});
        auto batch = reader.Read(at, m);
        EXPECT_TRUE(batch.ok()) << batch.status();
        if (batch.ok()) batches.push_back(*std::move(batch));
      }
    }
  }
  return batches;
}

// The state is the number of samples alone: another process goes on with the same bits.
TEST_F(BlendTest, ReadsTheSameSamplesInEveryLayoutAndFromAnyPositionOn) {
  const auto splits = Open(TwoCorpora(0.1, true));
  ASSERT_TRUE(splits.ok()) << splits.status();
  const Batches whole = Read(*splits->train, 0, 40, 1);
  EXPECT_EQ(Read(*splits->train, 0, 40, 4), whole);
  for (const int64_t step : {1, 17, 39}) {
    const auto resumed = Open(TwoCorpora(0.1, true));
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    EXPECT_EQ(Read(*resumed->train, 8 * step, 40 - step, 2),
              Batches(whole.begin() + 8 * step, whole.end()));
  }
  const auto other = Open(TwoCorpora(0.1, true), 6);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(Read(*other->train, 0, 40, 1), whole);
}

TEST_F(BlendTest, TakesThreeOfFourSamplesFromTheFirstAndHoldsOutTheEndOfEach) {
  const auto splits = Open(TwoCorpora(0.25));
  ASSERT_TRUE(splits.ok()) << splits.status();
  const auto tokens_of = [](const Dataset& data, int samples) {
    std::array<std::set<int32_t>, 2> tokens;
    int of_first = 0;
    for (const MicroBatchData& batch : Read(data, 0, samples / 8, 1)) {
      const auto& read = std::get<std::vector<int32_t>>(batch.at("tokens"));
      of_first += read[0] < 20'000 ? 1 : 0;
      tokens[read[0] < 20'000 ? 0 : 1].insert(read.begin(), read.end());
    }
    EXPECT_EQ(of_first, samples * 3 / 4);
    return tokens;
  };
  const auto train = tokens_of(*splits->train, 400), held = tokens_of(*splits->validation, 80);
  for (const int d : {0, 1}) {
    ASSERT_FALSE(held[size_t(d)].empty());
    EXPECT_LT(*train[size_t(d)].rbegin(), *held[size_t(d)].begin()) << d;
  }
}

// Each token of these corpora occurs once, so a token says whether it ends a document.
TEST_F(BlendTest, DoesNotCountTheTargetBehindTheEndOfADocument) {
  BlendData blend = TwoCorpora(0.1);
  blend.eod_mask_loss = true;
  const auto splits = Open(blend), all = Open(TwoCorpora(0.1));
  ASSERT_TRUE(splits.ok() && all.ok()) << splits.status() << all.status();
  EXPECT_FALSE(splits->train->counts_all_targets());
  EXPECT_TRUE(all->train->counts_all_targets());
  std::set<int32_t> ends;
  for (auto [token, documents] : {std::pair(1000, 40), std::pair(20'000, 90)}) {
    for (int d = 0; d < documents; ++d) ends.insert((token += LengthOf(d)) - 1);
  }
  const auto check = [&](const Batches& batches, const Batches& counted) {
    ASSERT_EQ(batches.size(), counted.size());
    for (size_t i = 0; i < batches.size(); ++i) {
      ASSERT_EQ(batches[i].size(), 2u);  // And no begins of documents, for which nobody has asked.
      EXPECT_EQ(batches[i].at("tokens"), counted[i].at("tokens"));
      auto want = std::get<std::vector<int32_t>>(counted[i].at("targets"));
      const auto& tokens = std::get<std::vector<int32_t>>(counted[i].at("tokens"));
      for (size_t t = 0; t < want.size(); ++t) {
        if (ends.contains(tokens[t])) want[t] = kNotCounted;
      }
      EXPECT_EQ(std::get<std::vector<int32_t>>(batches[i].at("targets")), want);
    }
  };
  check(Read(*splits->train, 0, 40, 1), Read(*all->train, 0, 40, 1));
  check(Read(*splits->validation, 0, 4, 1), Read(*all->validation, 0, 4, 1));
}

TEST_F(BlendTest, WrongDatasetsAreRefusedByName) {
  WriteCorpus("wide", 90, 1, IndexDType::kInt32);
  WriteCorpus("short", 1, 1);
  ASSERT_TRUE(WriteFileAtomic(Path("empty.txt"), "").ok());
  const auto with = [](const char* prefix) {
    BlendData blend = TwoCorpora();
    blend.datasets[1].prefix = prefix;
    return blend;
  };
  EXPECT_THAT(Refusal(with("wide")),
              AllOf(HasSubstr("wide.bin: wanted tokens of dtype code 8"), HasSubstr("found 4")));
  EXPECT_THAT(Refusal(with("short")), HasSubstr("short.bin: wanted at least sequence + 1 = 9"));
  EXPECT_THAT(Refusal(with("missing")), HasSubstr("missing.idx"));
  EXPECT_THAT(Refusal(with("/etc/passwd")), HasSubstr("/etc/passwd.idx"));
  EXPECT_THAT(Refusal({.datasets = {{1, "", "empty.txt"}}}),
              HasSubstr("empty.txt: wanted at least sequence + 1 = 9 tokens to train on, found 0"));
  EXPECT_THAT(Refusal({.datasets = {{1, "short", ""}}, .validation_fraction = 0.3}),
              HasSubstr("nothing is left to train on"));
}

TEST_F(BlendTest, TextsAreOneDocumentEach) {
  ASSERT_TRUE(WriteFileAtomic(Path("t"), "abcdefghijklmnopqrstuvwxyz").ok());
  const auto splits = Open({.datasets = {{1, "", "t"}}});
  ASSERT_TRUE(splits.ok()) << splits.status();
  for (const MicroBatchData& batch : Read(*splits->train, 0, 5, 1)) {
    const auto& tokens = std::get<std::vector<int32_t>>(batch.at("tokens"));
    for (size_t t = 1; t < tokens.size(); ++t) {
      EXPECT_EQ(tokens[t], tokens[t - 1] == 'z' ? 'a' : tokens[t - 1] + 1);
    }
  }
}

}  // namespace
}  // namespace trainyard
