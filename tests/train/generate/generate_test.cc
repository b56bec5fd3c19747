// Proves that text comes from the tokens of a vocabulary alone: with padding after the tokens, the
// same weights write the same text. A model that was imported writes the tokens of the tokenizer
// that it was imported with, and one whose tokens nobody knows is refused.

#include "train/generate/generate.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "tests/models/hf/files.h"
#include "tests/train/generate/chat_model.h"
#include "train/hf/import.h"

namespace trainyard::testing {
namespace {

// What new weights write.
std::string TextOf(int64_t vocab_multiple) {
  JobConfig job = TinyJob(FreshDirectory(absl::StrCat("generate-", vocab_multiple)));
  job.model.architecture->fields["vocab"] = int64_t{256};
  job.model.architecture->fields["vocab_multiple"] = vocab_multiple;
  job.optimizer.options["learning_rate"] = 1e-300;
  CHECK(RunJob(job)[0].status.ok());
  std::string text;
  const absl::Status status =
      Generate({.model = {.checkpoint = job.checkpoint->directory},
                .prompt = "a",
                .tokens = 40,
                .sampling = {.temperature = 1},
                .seed = 3},
               CpuBackend(), [&](absl::string_view more) { absl::StrAppend(&text, more); });
  EXPECT_TRUE(status.ok()) << status;
  return text;
}

TEST(Generate, PaddingOfTheVocabularyIsNeverWritten) {
  const std::string text = TextOf(1);
  EXPECT_NE(text, "");
  EXPECT_EQ(TextOf(24), text);
}

// Ten tokens of several letters. The model of tests/golden/hf/llama has a vocabulary of 13.
constexpr char kSmallTokenizer[] = R"({
  "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
  "decoder": {"type": "Fuse"},
  "model": {"type": "BPE", "unk_token": "[0]",
            "vocab": {"[0]": 0, "b": 1, "c": 2, "bc": 3, "[4]": 4, "[5]": 5, "[6]": 6, "[7]": 7,
                      "[8]": 8, "[9]": 9},
            "merges": [["b", "c"]]}})";

class ImportedModel : public ::testing::Test {
 protected:
  // Imports the directory with this tokenizer.json; empty: without one.
  std::string Import(const std::string& tokenizer) const {
    const std::string directory = FreshDirectory("generate-hf"), to = directory + "-imported";
    std::filesystem::remove_all(to);
    std::filesystem::copy(SourceFile("tests/golden/hf/llama"), directory,
                          std::filesystem::copy_options::recursive);
    if (!tokenizer.empty()) WriteBytes(directory + "/tokenizer.json", tokenizer);
    const auto imported = ImportHf({directory, to});
    EXPECT_TRUE(imported.ok()) << imported.status();
    return to;
  }

  static absl::StatusOr<std::string> Text(const std::string& checkpoint) {
    std::string text;
    const absl::Status status =
        Generate({.model = {.checkpoint = checkpoint},
                  .prompt = "bcb",
                  .tokens = 12,
                  .sampling = {.temperature = 2}},
                 CpuBackend(), [&](absl::string_view more) { absl::StrAppend(&text, more); });
    if (!status.ok()) return status;
    return text;
  }
};

TEST_F(ImportedModel, WritesTheTokensOfItsTokenizer) {
  const auto text = Text(Import(kSmallTokenizer));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, ::testing::MatchesRegex("(\\[[0-9]\\]|bc|b|c)+"));
  EXPECT_THAT(*text, ::testing::HasSubstr("]"));
}

TEST_F(ImportedModel, IsRefusedWithoutATokenizerAndWithOneThatDoesNotFit) {
  EXPECT_THAT(Text(Import("")).status().message(), ::testing::HasSubstr("no tokenizer"));
  std::string large = kSmallTokenizer;
  large.replace(large.find("\"[9]\": 9"), 8, "\"[9]\": 99");
  EXPECT_THAT(
      Text(Import(large)).status().message(),
      ::testing::AllOf(::testing::HasSubstr("tokenizer.json: wanted a model"),
                       ::testing::HasSubstr("at least 100"), ::testing::HasSubstr("found 13")));
}

TEST_F(ChatModel, AnswersInTheFormatOfItsRun) {
  const JobConfig job = Job("generate-chat", "chatml");
  const auto answer = Answer(job, {.chat = "What is 31?"});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, "a number");  // <|im_end|> has ended it.
  EXPECT_EQ(*Answer(job, {.chat = "What is 31?", .format = {.name = "chatml"}}), *answer);
  EXPECT_THAT(Answer(job, {.chat = "q", .format = {.name = "chatmi"}}).status().message(),
              ::testing::HasSubstr("chatml"));
  EXPECT_THAT(Answer(job, {.chat = "q", .format = {.name = "gemma"}}).status().message(),
              ::testing::HasSubstr("gemma"));
  EXPECT_THAT(Answer(job, {.chat = "q", .format = {.name = "segments"}}).status().message(),
              ::testing::HasSubstr("wanted a --format of chats, one of chatml"));
  std::filesystem::remove(job.data.As<ChatData>().tokenizer);
  EXPECT_THAT(Answer(job, {.chat = "q"}).status().message(), ::testing::HasSubstr("no tokenizer"));
}

TEST_F(ImportedModel, AnswersQuestionsOnlyWhereItsFormatIsKnown) {
  const std::string checkpoint = Import(kSmallTokenizer);
  std::string text;
  const absl::Status status =
      Generate({.model = {.checkpoint = checkpoint}, .chat = "q"}, CpuBackend(),
               [&](absl::string_view more) { absl::StrAppend(&text, more); });
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("wanted a chat_template"));
  EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace trainyard::testing
