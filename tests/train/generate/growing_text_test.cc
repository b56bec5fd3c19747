// Proves that a text which is read piece by piece, with keys and values kept, has the logits of the
// same text read at once, in every family that can keep them: windows, sinks, scaled and learned
// positions, latent attention and experts included. A text that outgrows the cache goes on from its
// last part.
//
// Bugs it must catch: a position, a window or a row of the cache that is off by one, and rows of an
// earlier text that are seen.

#include "train/generate/growing_text.h"

#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "models/arch/registry.h"
#include "tests/models/tiny.h"
#include "tests/testing/printed_seed.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kWindow = 16;  // Of the tiny models.

std::vector<std::string> FamiliesThatKeep() {
  std::vector<std::string> families;
  for (const Family& family : Families()) {
    const ModelFacts facts = FactsOf(family.defaults);
    if (CaseOf(family.name).is_decoder && facts.convolved_tokens == 0)
      families.push_back(family.name);
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

std::vector<double> Row(const Executable& executable, const GrowingText::Place& place) {
  const ValueInfo& info = executable.program().info(executable.program().outputs.at(place.output));
  std::vector<double> all(size_t(info.shape.elements()));
  executable.ReadOutput(place.output, 0, all.data(), all.size() * sizeof(double));
  const auto begin = all.begin() + place.row * info.shape[1];
  return {begin, begin + info.shape[1]};
}

class GrowingTextTest : public ::testing::TestWithParam<std::string> {
 protected:
  explicit GrowingTextTest(int64_t at_once = 3)
      : config_(TinyOf(GetParam())),
        model_(CreateModel(config_)),
        whole_(Bound(*model_, {.precision = Precision::F64(), .sequence = kWindow})),
        kept_(Bound(*model_,
                    {.precision = Precision::F64(), .sequence = at_once, .cache = kWindow})) {}

  void ExpectSame(GrowingText& text, const std::vector<int32_t>& tokens, size_t first) {
    const std::vector<double> got = Row(*kept_, text.Read(tokens));
    std::vector<int32_t> seen(tokens.begin() + std::ptrdiff_t(first), tokens.end());
    const int64_t last = int64_t(seen.size()) - 1;
    seen.resize(kWindow);
    whole_->WriteInput("tokens", 0, seen);
    whole_->Run(Action::kForward);
    EXPECT_THAT(got,
                ::testing::Pointwise(::testing::DoubleNear(1e-10), Row(*whole_, {"logits", last})))
        << tokens.size() << " tokens";
  }

  std::vector<int32_t> Text(size_t size, uint64_t seed = 5) const {
    return Tokens(int64_t(size), FactsOf(config_).vocab, seed);
  }

  const ModelConfig config_;
  const std::unique_ptr<Model> model_;
  const std::unique_ptr<Executable> whole_, kept_;
};

TEST_P(GrowingTextTest, PiecesHaveTheLogitsOfTheWhole) {
  std::mt19937_64 random(PrintedSeed());
  GrowingText text(*kept_);
  for (const uint64_t seed : {5, 6}) {  // The second text begins anew.
    const std::vector<int32_t> tokens = Text(kWindow, seed);
    for (size_t size = 0; size < tokens.size();) {
      size = std::min(tokens.size(), size + 1 + random() % 5);
      ExpectSame(text, {tokens.begin(), tokens.begin() + std::ptrdiff_t(size)}, 0);
    }
  }
}

TEST_P(GrowingTextTest, ATextThatOutgrowsTheCacheGoesOnFromItsLastPart) {
  GrowingText text(*kept_);
  const std::vector<int32_t> tokens = Text(2 * kWindow + 3);
  for (size_t size = kWindow - 1; size <= tokens.size(); ++size) {
    const size_t over = size > kWindow ? size - kWindow : 0, half = kWindow / 2;
    ExpectSame(text, {tokens.begin(), tokens.begin() + std::ptrdiff_t(size)},
               (over + half - 1) / half * half);
  }
}

TEST_P(GrowingTextTest, TheSameTextAgainAndAShorterOneAreRead) {
  GrowingText text(*kept_);
  const std::vector<int32_t> tokens = Text(9);
  ExpectSame(text, tokens, 0);
  ExpectSame(text, tokens, 0);
  ExpectSame(text, {tokens.begin(), tokens.begin() + 4}, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, GrowingTextTest, ::testing::ValuesIn(FamiliesThatKeep()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trainyard::testing
