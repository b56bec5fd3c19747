// Proves that texts which are read piece by piece, several at once, with keys and values kept, have
// the logits of each text read alone and at once, in every family of text: windows, sinks, scaled
// and learned positions, latent attention, experts and states of recurrent layers included. A text that outgrows
// the cache goes on from its last part. In f64 no bit of a text's logits depends on the texts
// beside it, nor on its place.
//
// Bugs it must catch: a position, a window or a row of the cache that is off by one, and rows of
// another or an earlier text that are seen.

#include "train/generate/growing_texts.h"

#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "models/arch/registry.h"
#include "tests/models/tiny.h"
#include "tests/testing/printed_seed.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kWindow = 16;  // Of the tiny models.

std::vector<std::string> TextFamilies() {
  std::vector<std::string> families;
  for (const Family& family : Families()) {
    if (CaseOf(family.name).is_decoder) families.push_back(family.name);
  }
  return families;
}

std::unique_ptr<Executable> Bound(const Model& model, const RecordOptions& options) {
  Program program = RecordInference(model, options);
  const MemoryPlan plan = PlanMemory(program);
  auto executable = *Executable::Create(std::move(program), plan, CpuBackend(), 1, {});
  executable->WriteStepState({.seed = 3});
  executable->Run(Action::kInit);
  executable->Run(Action::kPrepare);
  return executable;
}

using RowOfLogits = std::vector<double>;

RowOfLogits Row(const Executable& executable, const std::string& output, int64_t row) {
  const ValueInfo& info = executable.program().info(executable.program().outputs.at(output));
  std::vector<double> all(size_t(info.shape.elements()));
  if (info.dtype == DType::kF32) {
    std::vector<float> some(all.size());
    executable.ReadOutput(output, 0, some.data(), some.size() * sizeof(float));
    std::copy(some.begin(), some.end(), all.begin());
  } else {
    executable.ReadOutput(output, 0, all.data(), all.size() * sizeof(double));
  }
  const auto begin = all.begin() + row * info.shape[1];
  return {begin, begin + info.shape[1]};
}

// The logits of each text that is not empty.
std::vector<RowOfLogits> ReadTexts(GrowingTexts& texts, const Executable& executable,
                                   const std::vector<std::vector<int32_t>>& all) {
  std::vector<RowOfLogits> logits(all.size());
  const std::vector<std::span<const int32_t>> views(all.begin(), all.end());
  texts.Read(views, [&](const GrowingTexts::Rows& rows) {
    for (const auto& [place, row] : rows.of_places) {
      EXPECT_TRUE(logits[place].empty()) << "place " << place << " has logits twice";
      logits[place] = Row(executable, rows.output, row);
    }
  });
  return logits;
}

class GrowingTextsTest : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr size_t kPlaces = 6;

  GrowingTextsTest()
      : config_(TinyOf(GetParam())),
        model_(CreateModel(config_)),
        whole_(Bound(*model_, {.precision = Precision::F64(), .sequence = kWindow})),
        one_(Kept(1)),
        several_(Kept(kPlaces)) {}

  // Several texts are read in other pieces than one.
  std::unique_ptr<Executable> Kept(int64_t texts) const {
    return Bound(*model_, {.precision = Precision::F64(),
                           .sequence = texts == 1 ? 3 : 9,
                           .cache = kWindow,
                           .cached_texts = texts});
  }

  void ExpectSame(GrowingTexts& text, const std::vector<int32_t>& tokens, size_t first) {
    const RowOfLogits got = ReadTexts(text, *one_, {tokens})[0];
    std::vector<int32_t> seen(tokens.begin() + std::ptrdiff_t(first), tokens.end());
    const int64_t last = int64_t(seen.size()) - 1;
    seen.resize(kWindow);
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
    const std::vector<int32_t> tokens = Text(kWindow, seed);
    for (size_t size = 0; size < tokens.size();) {
      size = std::min(tokens.size(), size + 1 + random() % 5);
      ExpectSame(text, {tokens.begin(), tokens.begin() + std::ptrdiff_t(size)}, 0);
    }
  }
}

TEST_P(GrowingTextsTest, ATextThatOutgrowsTheCacheGoesOnFromItsLastPart) {
  GrowingTexts text(*one_);
  const std::vector<int32_t> tokens = Text(2 * kWindow + 3);
  for (size_t size = kWindow - 1; size <= tokens.size(); ++size) {
    const size_t over = size > kWindow ? size - kWindow : 0, half = kWindow / 2;
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
        grown.tokens = Text(2 * kWindow, random());
        together.Forget(i);
      }
      if (random() % 5 == 0) continue;  // Absent.
      if (!grown.waits) {
        const size_t before = grown.sizes.empty() ? 0 : grown.sizes.back();
        const size_t size = before == 0 ? 1 + random() % kWindow : before + 1 + random() % 3;
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

// The weights of linear layers and of tables may be kept in bf16: then the logits are those of the
// same numbers kept in f32.
TEST_P(GrowingTextsTest, NarrowWeightsAreTheirNumbers) {
  RecordOptions options = {.precision = Precision::F32().WithNarrowWeights(),
                           .sequence = 9,
                           .cache = kWindow,
                           .cached_texts = 2};
  const std::unique_ptr<Executable> narrow = Bound(*model_, options);
  options.precision = Precision::F32();
  const std::unique_ptr<Executable> wide = Bound(*model_, options);
  std::map<std::string, std::vector<bf16>> rounded;
  for (const ParameterBox& box : narrow->program().FrozenParameters()) {
    rounded[box.name].resize(size_t(box.shape.elements()));
  }
  EXPECT_GT(rounded.size(), 4u);
  for (const ParameterBox& box : wide->program().OwnedParameters()) {
    const auto found = rounded.find(box.name);
    if (found == rounded.end()) continue;
    auto* const numbers = wide->master(box.flat).as<float>();
    for (size_t i = 0; i < found->second.size(); ++i) {
      found->second[i] = bf16(numbers[i]);
      numbers[i] = float(found->second[i]);
    }
  }
  for (const ParameterBox& box : narrow->program().FrozenParameters()) {
    std::ranges::copy(rounded[box.name], narrow->frozen(box).as<bf16>());
  }
  GrowingTexts of_narrow(*narrow), of_wide(*wide);
  for (const size_t size : {size_t{6}, size_t{7}, size_t{12}}) {
    const std::vector<std::vector<int32_t>> texts = {Text(size), Text(size, 6)};
    const auto got = ReadTexts(of_narrow, *narrow, texts), want = ReadTexts(of_wide, *wide, texts);
    for (size_t i = 0; i < texts.size(); ++i) {
      ASSERT_EQ(got[i].size(), want[i].size());
      EXPECT_THAT(got[i], ::testing::Pointwise(::testing::DoubleNear(1e-4), want[i]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GrowingTextsTest, ::testing::ValuesIn(TextFamilies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trainyard::testing
