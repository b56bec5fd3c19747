// Proves how a text becomes samples with a tokenizer: the tokens are those of the whole text, the
// end is held out, and what cannot be trained is refused before training, by file.

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "models/language_model.h"
#include "tests/train/chat/golden_chat.h"
#include "train/chat/chat_lines.h"
#include "train/data/text.h"
#include "train/tokenizer/open_tokenizer.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kVocab = 2048;
constexpr int64_t kSequence = 8;

class EncodedText : public ::testing::Test {
 protected:
  EncodedText() : directory_(absl::StrCat(::testing::TempDir(), "/text_data")) {
    EXPECT_TRUE(RemoveTree(directory_).ok());
    EXPECT_TRUE(MakeDirectories(directory_).ok());
    Write("tokenizer.json", OpenGoldenChat("chatml").tokenizer_json);
    // Some tokens reach over line breaks, and over every multiple of bytes.
    for (int i = 0; i < 40; ++i) absl::StrAppend(&text_, "the answer \n\n to q", i, "\n \n");
    Write("text.txt", text_);
  }
  void Write(const std::string& name, const std::string& contents) const {
    std::ofstream(directory_ + "/" + name, std::ios::binary) << contents;
  }
  absl::StatusOr<DataSplits> Open(double fraction = 0, int64_t vocab = kVocab) const {
    return OpenData({.source = TextData{.path = directory_ + "/text.txt",
                                        .validation_fraction = fraction,
                                        .tokenizer_path = directory_ + "/tokenizer.json"},
                     .inputs = TokenInputs(vocab),
                     .sequence = kSequence,
                     .roots = Roots({directory_}),
                     .open_lines = OpenChatLines});
  }
  std::string Refusal(double fraction = 0, int64_t vocab = kVocab) const {
    const auto opened = Open(fraction, vocab);
    return opened.ok() ? "" : std::string(opened.status().message());
  }
  std::vector<int32_t> IdsOfTheText() const {
    const OpenedTokenizer opened = OpenTokenizer(directory_ + "/tokenizer.json").value();
    std::vector<int32_t> ids;
    EXPECT_TRUE(opened.tokenizer->NewEncoder()->Encode(text_, ids).ok());
    return ids;
  }
  static std::vector<int32_t> Tokens(const Dataset& data, int64_t sample) {
    std::vector<InputData> out(data.inputs().size(), std::vector<int32_t>());
    EXPECT_TRUE(data.Read({.index = sample}, out).ok());
    return std::get<std::vector<int32_t>>(out[0]);
  }

  const std::string directory_;
  std::string text_;
};

TEST_F(EncodedText, HasTheTokensOfTheWholeText) {
  const std::vector<int32_t> ids = IdsOfTheText();
  ASSERT_LT(ids.size(), text_.size()) << "or bytes would pass";
  const auto splits = Open();
  ASSERT_TRUE(splits.ok()) << splits.status();
  EXPECT_EQ(splits->validation, nullptr);
  ASSERT_EQ(splits->train->num_samples(), (int64_t(ids.size()) - 1) / kSequence);
  for (int64_t sample = 0; sample < splits->train->num_samples(); ++sample) {
    const auto begin = ids.begin() + sample * kSequence;
    EXPECT_EQ(Tokens(*splits->train, sample), std::vector<int32_t>(begin, begin + kSequence));
  }
}

TEST_F(EncodedText, HoldsOutTheLastTokens) {
  const std::vector<int32_t> ids = IdsOfTheText();
  const auto splits = Open(0.25);
  ASSERT_TRUE(splits.ok()) << splits.status();
  const auto begin = ids.end() - int64_t(0.25 * double(ids.size()));
  EXPECT_EQ(Tokens(*splits->validation, 0), std::vector<int32_t>(begin, begin + kSequence));
  EXPECT_EQ(splits->train->num_samples(), (begin - ids.begin() - 1) / kSequence);
}

TEST_F(EncodedText, RefusesAVocabularyThatTheModelLacks) {
  EXPECT_THAT(Refusal(0, 300), HasSubstr("/tokenizer.json: wanted a model with a vocabulary of at "
                                         "least "));
}

TEST_F(EncodedText, RefusesATextThatIsTooLong) {
  std::filesystem::resize_file(directory_ + "/text.txt", kMostEncodedBytes + 1);
  EXPECT_THAT(Refusal(), HasSubstr("/text.txt: wanted at most 268435456 bytes beside a "
                                   "tokenizer_path, found 268435457; trainyard-tokenize"));
}

TEST_F(EncodedText, RefusesWhatHoldsOutNothing) {
  EXPECT_THAT(Refusal(1e-6), HasSubstr(" tokens holds out nothing"));
}

TEST_F(EncodedText, NamesATokenizerThatIsNotThere) {
  std::filesystem::remove(directory_ + "/tokenizer.json");
  EXPECT_THAT(Refusal(), HasSubstr("tokenizer.json"));
}

}  // namespace
}  // namespace trainyard::testing
