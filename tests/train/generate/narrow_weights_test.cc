// Proves that a model whose weights are kept in bf16, which CPUs alone multiply by, has the logits
// of the same numbers kept in f32, in every family of text.

#include <algorithm>
#include <map>

#include "gmock/gmock.h"
#include "tests/train/generate/growing_texts.h"

namespace trainyard::testing {
namespace {

class NarrowWeightsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(NarrowWeightsTest, AreTheirNumbers) {
  const ModelConfig config = TinyOf(GetParam());
  const std::unique_ptr<Model> model = CreateModel(config);
  const int64_t vocab = FactsOf(config).vocab;
  RecordOptions options = {.precision = Precision::F32().WithNarrowWeights(),
                           .sequence = 9,
                           .cache = kTinyWindow,
                           .cached_texts = 2};
  const std::unique_ptr<Executable> narrow = Bound(*model, options);
  options.precision = Precision::F32();
  const std::unique_ptr<Executable> wide = Bound(*model, options);
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
    const std::vector<std::vector<int32_t>> texts = {Tokens(int64_t(size), vocab, 5),
                                                     Tokens(int64_t(size), vocab, 6)};
    const auto got = ReadTexts(of_narrow, *narrow, texts), want = ReadTexts(of_wide, *wide, texts);
    for (size_t i = 0; i < texts.size(); ++i) {
      ASSERT_EQ(got[i].size(), want[i].size());
      EXPECT_THAT(got[i], ::testing::Pointwise(::testing::DoubleNear(1e-4), want[i]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, NarrowWeightsTest, ::testing::ValuesIn(TextFamilies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trainyard::testing
