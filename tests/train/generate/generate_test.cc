// Proves that text comes from the tokens of a vocabulary alone: with padding after the tokens, the
// same weights write the same text. A model that was imported writes the tokens of the tokenizer
// that it was imported with, and one whose tokens nobody knows is refused. Prompts of a file are
// answered in their order, and those that cannot be are refused with their line, before any answer.

#include "train/generate/generate.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/status_macros.h"
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

// The largest difference between the logits after a text of a model that generates, and those by
// the numbers of its checkpoint, which are wide.
double OfNarrowWeights(PrecisionName precision, std::optional<AdapterConfig> adapter = {}) {
  JobConfig job = TinyJob(FreshDirectory(absl::StrCat("generate-narrow-", int(precision))));
  job.adapter = std::move(adapter);
  job.model.architecture->fields["vocab"] = int64_t{256};
  job.model.architecture->fields["vocab_multiple"] = int64_t{24};
  job.precision = precision;
  CHECK(RunJob(job)[0].status.ok());
  const InferenceModel::Options options = {.checkpoint = job.checkpoint->directory};
  const std::vector<int32_t> text = {3, 1, 4, 1, 5};
  InferenceModel whole = *InferenceModel::Load(options, InferenceModel::Use::kWhole, CpuBackend());
  whole.Run(text);
  InferenceModel growing =
      *InferenceModel::Load(options, InferenceModel::Use::kGrowing, CpuBackend());
  growing.Read(std::vector<std::span<const int32_t>>{text});
  double largest = 0;
  for (size_t i = 0; i < 256; ++i) {
    largest = std::max(largest, double(std::abs(whole.Logits(4)[i] - growing.After(0)[i])));
  }
  return largest;
}

TEST(Generate, WeightsAreAsTrainingReadThem) {
  EXPECT_LT(OfNarrowWeights(PrecisionName::kF32), 1e-6);
  const double rounded = OfNarrowWeights(PrecisionName::kBF16);
  EXPECT_GT(rounded, 1e-5);
  EXPECT_LT(rounded, 1e-2);
}

// The base lies in bf16 in the checkpoint, so it is the same in either form.
TEST(Generate, AnAdapterStaysBesideItsBase) {
  for (const bool dora : {false, true}) {
    const AdapterConfig adapter = {.lora = LoraConfig{.rank = 2, .alpha = 4, .dora = dora}};
    EXPECT_LT(OfNarrowWeights(PrecisionName::kBF16, adapter), 1e-5) << dora;
  }
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
  // As of an earlier release, whose checkpoints do not keep it.
  std::filesystem::remove_all(Newest(job.checkpoint->directory).path() + "/tokenizer");
  EXPECT_EQ(*Answer(job, {.chat = "What is 31?"}), *answer);
  std::filesystem::remove(job.data.As<ChatData>().tokenizer);
  EXPECT_THAT(Answer(job, {.chat = "q"}).status().message(), ::testing::HasSubstr("no tokenizer"));
}

// The lines that GenerateEach writes.
absl::StatusOr<std::vector<nlohmann::json>> Each(const JobConfig& job, const Prompts& prompts,
                                                 GenerateOptions options = {}) {
  options.model.checkpoint = job.checkpoint->directory;
  options.sampling.temperature = 0;
  std::vector<nlohmann::json> lines;
  RETURN_IF_ERROR(GenerateEach(options, prompts, CpuBackend(), [&](const std::string& line) {
    EXPECT_EQ(line.find('\n'), line.npos);
    lines.push_back(nlohmann::json::parse(line));
  }));
  return lines;
}

TEST_F(ChatModel, GoesOnWithPromptsOfAFileInTheirOrder) {
  const JobConfig job = Job("generate-each", "chatml");
  const std::string path = FreshDirectory("generate-prompts") + ".jsonl";
  const auto each = [&](const std::string& lines, const GenerateOptions& options = {}) {
    WriteBytes(path, lines);
    return Each(job, {.path = path}, options);
  };
  const std::string question = R"({"messages": [{"role": "user", "content": "What is 31?"}]})";
  const auto lines =
      each("\n" + question + "\r\n  \n" + R"({"prompt": "What", "id": 7})" + "\n" + question,
           {.tokens = 9, .stop = {"zzz", "umb"}, .batch = 2});
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_EQ(lines->size(), 3u);
  EXPECT_EQ(lines->at(0)["generated"], "a n");
  EXPECT_EQ(lines->at(0)["ended_by"], "stop_text");
  EXPECT_EQ(lines->at(0)["messages"][0]["content"], "What is 31?");
  EXPECT_EQ(lines->at(1)["prompt"], "What");
  EXPECT_EQ(lines->at(1)["id"], 7);
  EXPECT_EQ(lines->at(2), lines->at(0));
  const auto whole = each(question, {.tokens = 50});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->at(0)["generated"], "a number");
  EXPECT_EQ(whole->at(0)["ended_by"], "end_token");
  const int64_t tokens = whole->at(0)["tokens"];
  EXPECT_GT(tokens, 0);
  const auto cut = each(question, {.tokens = tokens - 1});
  EXPECT_EQ(cut->at(0)["ended_by"], "length");
  EXPECT_EQ(cut->at(0)["tokens"], tokens - 1);
  const auto none = Each(job, {.texts = {"a", "b"}}, {.tokens = 0});
  EXPECT_EQ(none->at(1).dump(), R"({"ended_by":"length","generated":"","prompt":"b","tokens":0})");
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"", "wanted prompts, found none"},
      {"\n\n", "wanted prompts, found none"},
      {question + "\n{\"prompt\": ", ".jsonl:2: "},
      {question + "\n\n[\"a\"]", ".jsonl:3: wanted an object"},
      {R"({"text": "a"})", ".jsonl:1: "},
      {R"({"prompt": 7})", ".jsonl:1: "},
      {R"({"prompt": "a", "tokens": 3})", ".jsonl:1: tokens: wanted no such field"},
  };
  for (const auto& [file, message] : refused) {
    EXPECT_THAT(std::string(each(file).status().message()), ::testing::HasSubstr(message)) << file;
  }
  GenerateOptions small;
  small.model.window = 5;
  EXPECT_THAT(std::string(each(R"({"prompt": "a"})"
                               "\n" +
                                   question,
                               small)
                              .status()
                              .message()),
              ::testing::HasSubstr(".jsonl:2: wanted a question of at most 5 tokens"));
  EXPECT_TRUE(each(R"({"prompt": "a text beyond the window"})", small).ok());
  EXPECT_THAT(std::string(each(question, {.batch = 1025}).status().message()),
              ::testing::HasSubstr("batch: wanted 1 to 1024, found 1025"));
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
