// Proves that a model which tensor ranks hold together computes what one rank computes: in every
// family of text, texts that grow together have one rank's logits to 1e-12 in f64 on two and four
// ranks, with windows, sinks, experts, states of recurrent layers, key/value heads that ranks share
// and a padded vocabulary.
//
// Bugs it must catch: positions or rows of another rank, heads that are divided otherwise than
// their cache, logits in the order of another rank, and pieces that differ from one rank's.

#include <functional>
#include <random>

#include "gmock/gmock.h"
#include "kernels/collective/staged.h"
#include "tests/testing/printed_seed.h"
#include "tests/testing/ranks.h"
#include "tests/train/generate/growing_texts.h"
#include "tests/train/step/layouts.h"
#include "train/config/mesh.h"
#include "train/config/validate_layout.h"
#include "train/generate/tensor_gang.h"

namespace trainyard::testing {
namespace {

struct Case {
  std::string family;
  int ranks;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.family << " on " << c.ranks; }

bool OnGpu() { return TestedBackend().device() == DeviceKind::kCuda; }

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string& family : TextFamilies()) {
    // On an emulated GPU, families with a cache of each kind.
    if (OnGpu() && family != "gpt_oss" && family != "nemotron_h") continue;
    for (const int ranks : OnGpu() ? std::vector<int>{2} : std::vector<int>{2, 4}) {
      cases.push_back({family, ranks});
    }
  }
  return cases;
}

class TensorRanksTest : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kTexts = 4;

  TensorRanksTest() {
    const auto [family, ranks] = GetParam();
    config_ = MakeLayoutCase(family, {.tensor = ranks}, 1).model;
    SetField(config_, "max_seq", kTinyWindow);
    SetField(config_, "vocab_multiple", int64_t{1});
  }

  // The texts at their places at each step: of very different lengths, some of them absent, some
  // new, one beyond the window.
  std::vector<std::vector<std::vector<int32_t>>> Steps() const {
    std::mt19937_64 random(PrintedSeed());
    const int64_t vocab = FactsOf(config_).vocab;
    std::vector<std::vector<int32_t>> texts;
    for (const int64_t size : {1, 13, 4, 7}) texts.push_back(Tokens(size, vocab, random()));
    std::vector<std::vector<std::vector<int32_t>>> steps;
    for (int step = 0; step < 8; ++step) {
      steps.push_back(texts);
      if (step == 3) steps.back()[2].clear();
      if (step == 5) texts[0] = Tokens(6, vocab, random());
      for (std::vector<int32_t>& text : texts) text.push_back(Tokens(1, vocab, random())[0]);
    }
    return steps;
  }

  RecordOptions Options() const {
    return {.precision = OnGpu() ? Precision::F32() : Precision::F64(),
            .sequence = 8,
            .cache = kTinyWindow,
            .cached_texts = kTexts};
  }

  std::vector<std::vector<RowOfLogits>> OfOneRank() const {
    const std::unique_ptr<Executable> one = Bound(*CreateModel(config_), Options());
    GrowingTexts texts(*one);
    std::vector<std::vector<RowOfLogits>> logits;
    for (const auto& step : Steps()) logits.push_back(ReadTexts(texts, *one, step));
    return logits;
  }

  // This rank's columns.
  std::vector<std::vector<RowOfLogits>> OfRank(CollectiveWorld& world) const {
    const auto gang = *TensorGang::Create(world);
    const ModelConfig model = *DividedOverTensorRanks(config_, gang->size());
    RecordOptions options = Options();
    options.mesh = MeshOfTensorRanks(gang->size(), model);
    options.mesh.rank = gang->rank();
    Program program = RecordInference(*CreateModel(model), options);
    const CollectiveTable collectives = *gang->Join(program);
    const MemoryPlan plan = PlanMemory(program);
    auto part = *Executable::Create(std::move(program), plan, TestedBackend(), 1, collectives);
    part->WriteStepState({.seed = 3});
    part->Run(Action::kInit);
    part->Run(Action::kPrepare);
    GrowingTexts texts(*part);
    std::vector<std::vector<RowOfLogits>> logits;
    for (const auto& step : Steps()) logits.push_back(ReadTexts(texts, *part, step));
    return logits;
  }

  ModelConfig config_;
};

TEST_P(TensorRanksTest, TextsHaveTheLogitsOfOneRank) {
  const int ranks = GetParam().ranks;
  std::vector<std::vector<std::vector<RowOfLogits>>> parts(static_cast<size_t>(ranks));
  for (const std::string& thrown : RunWorlds(ranks, [&](CollectiveWorld& world) {
         std::unique_ptr<CollectiveWorld> staged;
         if (OnGpu()) staged = CreateStagedWorld(world, TestedBackend());
         parts[size_t(world.rank())] = OfRank(staged ? *staged : world);
       })) {
    ASSERT_EQ(thrown, "");
  }
  const auto one = OfOneRank();
  const size_t vocab = size_t(FactsOf(config_).vocab);
  for (size_t step = 0; step < one.size(); ++step) {
    for (size_t text = 0; text < one[step].size(); ++text) {
      RowOfLogits whole;
      for (const auto& part : parts) {
        whole.insert(whole.end(), part[step][text].begin(), part[step][text].end());
      }
      ASSERT_EQ(one[step][text].empty(), whole.empty()) << "step " << step << ", text " << text;
      if (whole.empty()) continue;
      ASSERT_GE(whole.size(), vocab);
      whole.resize(vocab);  // Without padding.
      RowOfLogits want = one[step][text];
      want.resize(vocab);
      EXPECT_THAT(whole, ::testing::Pointwise(::testing::DoubleNear(OnGpu() ? 1e-5 : 1e-12), want))
          << "step " << step << ", text " << text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TensorRanksTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) {
                           return absl::StrCat(info.param.family, "_", info.param.ranks);
                         });

}  // namespace
}  // namespace trainyard::testing
