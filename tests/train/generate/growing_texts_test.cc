// Proves that texts which are read piece by piece, several at once, with keys and values kept, have
// the logits of each text read alone and at once, in every family of text: windows, sinks, scaled
// and learned positions, latent attention, experts and states of recurrent layers included. A text
// that outgrows the cache goes on from its last part. In f64 no bit of a text's logits depends on
// the texts beside it, nor on its place.
//
// Bugs it must catch: a position, a window or a row of the cache that is off by one, and rows of
// another or an earlier text that are seen.

#include "tests/train/generate/growing_texts.h"

#include <random>

#include "gmock/gmock.h"
#include "tests/testing/printed_seed.h"

namespace trainyard::testing {
namespace {

class GrowingTextsTest : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr size_t kPlaces = 6;

  GrowingTextsTest()
      : config_(TinyOf(GetParam())),
        model_(CreateModel(config_)),
        whole_(Bound(*model_, {.precision = Precision::F64(), .sequence = kTinyWindow})),
        one_(Kept(1)),
        several_(Kept(kPlaces)) {}

  // Several texts are read in other pieces than one.
  std::unique_ptr<Executable> Kept(int64_t texts) const {
    return Bound(*model_, {.precision = Precision::F64(),
                           .sequence = texts == 1 ? 3 : 9,
                           .cache = kTinyWindow,
                           .cached_texts = texts});
  }

  void ExpectSame(GrowingTexts& text, const std::vector<int32_t>& tokens, size_t first) {
    const RowOfLogits got = ReadTexts(text, *one_, {tokens})[0];
    std::vector<int32_t> seen(tokens.begin() + std::ptrdiff_t(first), tokens.end());
    const int64_t last = int64_t(seen.size()) - 1;
    seen.resize(kTinyWindow);
    whole_->WriteInput("tokens", 0, seen);
    whole_->Run(Action::kForward);
    EXPECT_THAT(got,
                ::testing::Pointwise(::testing::DoubleNear(1e-10), Row(*whole_, "logits", last)))
        << tokens.size() << " tokens";
  }

  std::vector<int32_t> Text(size_t size, uint64_t seed = 5) const {
    return Tokens(int64_t(size), FactsOf(config_).vocab, seed);
  }

  const ModelConfig config_;
  const std::unique_ptr<Model> model_;
  const std::unique_ptr<Executable> whole_, one_, several_;
};

TEST_P(GrowingTextsTest, PiecesHaveTheLogitsOfTheWhole) {
  std::mt19937_64 random(PrintedSeed());
  GrowingTexts text(*one_);
  for (const uint64_t seed : {5, 6}) {  // The second text begins anew.
    const std::vector<int32_t> tokens = Text(kTinyWindow, seed);
    for (size_t size = 0; size < tokens.size();) {
      size = std::min(tokens.size(), size + 1 + random() % 5);
      ExpectSame(text, {tokens.begin(), tokens.begin() + std::ptrdiff_t(size)}, 0);
    }
  }
}

TEST_P(GrowingTextsTest, ATextThatOutgrowsTheCacheGoesOnFromItsLastPart) {
  GrowingTexts text(*one_);
  const std::vector<int32_t> tokens = Text(2 * kTinyWindow + 3);
  for (size_t size = kTinyWindow - 1; size <= tokens.size(); ++size) {
    const size_t over = size > kTinyWindow ? size - kTinyWindow : 0, half = kTinyWindow / 2;
    ExpectSame(text, {tokens.begin(), tokens.begin() + std::ptrdiff_t(size)},
               (over + half - 1) / half * half);
  }
}

TEST_P(GrowingTextsTest, TheSameTextAgainAndAShorterOneAreRead) {
  GrowingTexts text(*one_);
  const std::vector<int32_t> tokens = Text(9);
  ExpectSame(text, tokens, 0);
  ExpectSame(text, tokens, 0);
  ExpectSame(text, {tokens.begin(), tokens.begin() + 4}, 0);
}

// Texts of random lengths come, grow beyond the cache, are absent for a while, and go, at random
// places. Each of them is beside others what it is alone. A text of two or three new tokens takes
// as many calls, while those beside it grow.
TEST_P(GrowingTextsTest, ATextBesideOthersHasItsLogitsToTheBit) {
  std::mt19937_64 random(PrintedSeed());
  GrowingTexts together(*several_);
  struct Grown {
    std::vector<int32_t> tokens;
    std::vector<size_t> sizes;  // At which it was read.
    bool waits = false;         // Not read to its end yet.
    std::vector<RowOfLogits> logits;
  };
  std::vector<Grown> ended, places(kPlaces);
  int waits = 0;
  for (int step = 0; step < 60; ++step) {
    std::vector<std::vector<int32_t>> texts(kPlaces);
    for (size_t i = 0; i < kPlaces; ++i) {
      Grown& grown = places[i];
      if (grown.tokens.empty() || (!grown.waits && random() % 12 == 0)) {
        ended.push_back(std::exchange(grown, Grown()));
        grown.tokens = Text(2 * kTinyWindow, random());
        together.Forget(i);
      }
      if (random() % 5 == 0) continue;  // Absent.
      if (!grown.waits) {
        const size_t before = grown.sizes.empty() ? 0 : grown.sizes.back();
        const size_t size = before == 0 ? 1 + random() % kTinyWindow : before + 1 + random() % 3;
        if (size > grown.tokens.size()) continue;
        grown.sizes.push_back(size);
      }
      texts[i].assign(grown.tokens.begin(),
                      grown.tokens.begin() + std::ptrdiff_t(grown.sizes.back()));
    }
    const std::vector<RowOfLogits> logits = ReadTexts(together, *several_, texts);
    for (size_t i = 0; i < kPlaces; ++i) {
      if (texts[i].empty()) {
        ASSERT_TRUE(logits[i].empty());
        continue;
      }
      places[i].waits = logits[i].empty();
      waits += int(places[i].waits);
      if (!places[i].waits) places[i].logits.push_back(logits[i]);
    }
  }
  EXPECT_GT(waits, 0);
  GrowingTexts alone(*several_);
  for (const Grown& grown : ended) {
    alone.Forget(0);
    for (size_t n = 0; n < grown.logits.size(); ++n) {
      const auto end = grown.tokens.begin() + std::ptrdiff_t(grown.sizes[n]);
      std::vector<RowOfLogits> logits;
      do {
        logits = ReadTexts(alone, *several_, {{grown.tokens.begin(), end}});
      } while (logits[0].empty());
      ASSERT_EQ(logits[0], grown.logits[n]) << grown.sizes[n] << " tokens";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GrowingTextsTest, ::testing::ValuesIn(TextFamilies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trainyard::testing
