// Proves that what a model writes after a prompt does not depend on the prompts beside it, nor on
// how many there are at once: in every family, with tokens that are drawn and with the likeliest
// ones, texts of a batch are those of each prompt alone. Prompts have very different lengths,
// outgrow the window, and end early, by a token or a text, so that others take their places.
//
// Bugs it must catch: draws or keys of another prompt, and a place that keeps an earlier text.

#include "train/generate/continue_prompts.h"

#include <map>

#include "gmock/gmock.h"
#include "tests/train/generate/byte_model.h"

namespace trainyard::testing {
namespace {

struct Written {
  std::string text;
  int64_t tokens;
  Ending ending;
  bool operator==(const Written&) const = default;
};
void PrintTo(const Written& written, std::ostream* out) {
  *out << written.tokens << " tokens, " << Name(written.ending) << ": "
       << ::testing::PrintToString(written.text);
}

class ContinuePromptsTest : public ::testing::TestWithParam<std::string> {
 protected:
  ContinuePromptsTest() : checkpoint_(CheckpointOf(GetParam())) {
    for (const char* text : {"In the beginning", "a", "I am longer than the window is by far",
                             "12 tokens is", "thirteen of t", "", "bc", "nine more", "x"}) {
      prompts_.push_back(*EncodeText(Load(1).tokenizer(), text));
    }
  }

  InferenceModel Load(int64_t texts) const {
    auto model = InferenceModel::Load({.checkpoint = checkpoint_, .texts = texts},
                                      InferenceModel::Use::kGrowing, CpuBackend());
    CHECK(model.ok()) << model.status();
    return *std::move(model);
  }

  static std::vector<Written> Continue(InferenceModel& model, std::vector<EncodedPrompt> prompts,
                                       const ContinuationOptions& options) {
    std::vector<Written> written;
    const absl::Status status = ContinuePrompts(
        model, std::move(prompts), options, Draws::kOwn, [&](size_t i, const WrittenText& of) {
          EXPECT_EQ(i, written.size());
          written.push_back({of.text, of.tokens, of.ending});
        });
    EXPECT_TRUE(status.ok()) << status;
    return written;
  }

  std::vector<Written> Alone(ContinuationOptions options) const {
    InferenceModel model = Load(1);
    std::vector<Written> written;
    for (options.number = 0; options.number < prompts_.size(); ++options.number) {
      written.push_back(Continue(model, {prompts_[options.number]}, options).at(0));
    }
    return written;
  }

  const std::string checkpoint_;
  std::vector<EncodedPrompt> prompts_;
};

TEST_P(ContinuePromptsTest, ABatchWritesWhatEachPromptWritesAlone) {
  for (const double temperature : {0.0, 1.0}) {
    ContinuationOptions options = {.tokens = 17, .sampling = {.temperature = temperature}};
    for (EncodedPrompt& prompt : prompts_) prompt.end.reset();
    const std::vector<Written> whole = Alone(options);
    // Two texts end at a token that they draw, if they have one that is a character. The likeliest
    // tokens of such models are too much alike for a text that ends one of them only.
    int ends = 0;
    for (const size_t i : {size_t{1}, size_t{6}}) {
      const size_t at = whole[i].text.find_first_not_of('?', 3);
      if (at == std::string::npos || uint8_t(whole[i].text[at]) > 127) continue;
      prompts_[i].end = int32_t(whole[i].text[at]);
      ++ends;
    }
    if (temperature > 0) options.stop = {whole[3].text.substr(3, 6)};
    const std::vector<Written> alone = Alone(options);
    std::map<Ending, int> endings;
    for (const Written& written : alone) ++endings[written.ending];
    EXPECT_EQ(endings[Ending::kEndToken], ends);
    EXPECT_EQ(endings[Ending::kStopText], int(temperature > 0));
    EXPECT_GT(endings[Ending::kLength], 0);
    for (const int64_t texts : {2, 4, 9}) {
      InferenceModel model = Load(texts);
      EXPECT_EQ(Continue(model, prompts_, options), alone)
          << texts << " at once, temperature " << temperature;
    }
  }
}

TEST_P(ContinuePromptsTest, EachPromptHasDrawsOfItsOwn) {
  InferenceModel model = Load(2);
  const ContinuationOptions options = {.tokens = 17, .sampling = {.temperature = 1}};
  const std::vector<Written> same = Continue(model, {prompts_[0], prompts_[0]}, options);
  EXPECT_NE(same[0].text, same[1].text);
}

INSTANTIATE_TEST_SUITE_P(Families, ContinuePromptsTest, ::testing::ValuesIn(Decoders()),
                         [](const auto& info) { return info.param; });

TEST(ContinuePromptsMemory, HasAsManyTextsAsFit) {
  InferenceModel::Options options = {.checkpoint = CheckpointOf("llama"), .texts = 64};
  const auto load = [&](bool fewer, uint64_t bytes) {
    options.fewer_texts = fewer, options.memory_bytes = bytes;
    return InferenceModel::Load(options, InferenceModel::Use::kGrowing, CpuBackend());
  };
  EXPECT_EQ(load(false, 1 << 30)->texts(), 64u);
  const std::string refused(load(false, 1 << 20).status().message());
  EXPECT_THAT(refused, ::testing::HasSubstr("batch: wanted at most "));
  EXPECT_THAT(refused, ::testing::HasSubstr("found 64; a shorter --window takes less"));
  const size_t fit = load(true, 1 << 20)->texts();
  EXPECT_GT(fit, 1u);
  EXPECT_LT(fit, 64u);
  options.texts = int64_t(fit);
  EXPECT_EQ(load(false, 1 << 20)->texts(), fit);
  options.texts = int64_t(fit) + 2;  // Alignment may leave room for one more.
  EXPECT_FALSE(load(false, 1 << 20).ok());
  EXPECT_EQ(load(true, 1)->texts(), 1u);
}

}  // namespace
}  // namespace trainyard::testing
