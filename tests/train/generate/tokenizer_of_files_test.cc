// Proves that files of tokens say which tokenizer made them: a job on such files keeps that
// tokenizer, writes its texts with it, and refuses a model, a field or another dataset that has
// another one.

#include <gmock/gmock.h>

#include <filesystem>

#include "common/files.h"
#include "models/language_model.h"
#include "tests/train/generate/chat_model.h"
#include "train/chat/prompts.h"
#include "train/data/blend.h"
#include "train/data/indexed.h"
#include "train/generate/tokenizer_of.h"
#include "train/hf/carried_files.h"
#include "train/tokenizer/open_tokenizer.h"
#include "train/tools/tokenize.h"

namespace trainyard::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class TokenizerOfFiles : public ::testing::Test {
 protected:
  TokenizerOfFiles()
      : directory_(FreshDirectory(
            absl::StrCat("tokenizer_of_files_",
                         ::testing::UnitTest::GetInstance()->current_test_info()->name()))) {
    EXPECT_TRUE(MakeDirectories(directory_).ok());
    WriteBytes(directory_ + "/mine.json", OpenGoldenChat("chatml").tokenizer_json);
    WriteBytes(directory_ + "/other.json", OpenGoldenChat("chatml").tokenizer_json + "\n");
    std::string text;
    for (int i = 0; i < 60; ++i) absl::StrAppend(&text, "the question and the answer\n\n");
    WriteBytes(directory_ + "/text.txt", text);
  }

  // Makes the files of the name, as trainyard-tokenize does.
  std::string Tokenize(const std::string& name, const std::string& tokenizer = "/mine.json") const {
    const OpenedTokenizer opened = OpenTokenizer(directory_ + tokenizer).value();
    const std::string prefix = absl::StrCat(directory_, "/", name);
    const auto made = TokenizeCorpus(*opened.tokenizer,
                                     {.inputs = {directory_ + "/text.txt"},
                                      .prefix = prefix,
                                      .tokenizer = opened.digest,
                                      .tokenizer_files = TokenizerToKeep(opened.path).value()});
    EXPECT_TRUE(made.ok()) << made.status();
    return prefix;
  }

  JobConfig JobOn(const std::string& prefix, int64_t vocab = 2048) const {
    JobConfig job = TinyJob(directory_ + "/run");
    job.model.architecture->fields["vocab"] = vocab;
    job.steps = 4;
    job.data = IndexedData{.prefix = prefix, .validation_fraction = 0.2};
    job.validation = ValidationConfig{.every_steps = 2, .batches = 1};
    return job;
  }

  static RankRun Run(const JobConfig& job, int64_t epoch = 1) {
    return RunJob(job, {.epoch = epoch,
                        .resume = epoch > 1,
                        .open_lines = OpenChatLines,
                        .open_prompts = OpenPromptCodec})[0];
  }
  static std::string Newest(const JobConfig& job) {
    return FindCheckpoint(job.checkpoint->directory)->checkpoint->path();
  }
  static std::string Message(const RankRun& run) { return std::string(run.status.message()); }

  const std::string directory_;
};

TEST_F(TokenizerOfFiles, IsKeptAndWritesTexts) {
  const std::string prefix = Tokenize("corpus");
  JobConfig job = JobOn(prefix);
  job.validation->generate = GenerationConfig{.prompts = {"the question"}, .tokens = 4};
  const RankRun run = Run(job);
  ASSERT_TRUE(run.status.ok()) << run.status;
  ASSERT_EQ(run.records.back().generated.size(), 1u);
  const auto opened = TokenizerOf(Newest(job), 2048);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->path, KeptVocabulary(Newest(job)));
  EXPECT_EQ(opened->digest, OpenTokenizer(directory_ + "/mine.json")->digest);
  // A later attempt keeps it, too, if somebody has removed it beside the tokens.
  std::filesystem::remove_all(prefix + ".tokenizer");
  job.steps = 8;
  job.validation->generate.reset();
  const RankRun later = Run(job, 2);
  ASSERT_TRUE(later.status.ok()) << later.status;
  EXPECT_THAT(Newest(job), HasSubstr("step-8"));
  const auto again = TokenizerOf(Newest(job), 2048);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->digest, opened->digest);
}

// Bug it must catch: a run goes on with tokens that mean something else.
TEST_F(TokenizerOfFiles, AnotherOneIsNoticed) {
  const std::string prefix = Tokenize("corpus");
  JobConfig job = JobOn(prefix);
  ASSERT_TRUE(Run(job).status.ok());
  std::filesystem::remove_all(prefix + ".tokenizer");
  for (const char* end : {".bin", ".idx"}) std::filesystem::remove(prefix + end);
  Tokenize("corpus", "/other.json");
  job.steps = 8;
  EXPECT_THAT(Message(Run(job, 2)), HasSubstr("data.indexed.tokenizer: "));
}

TEST_F(TokenizerOfFiles, MustFitTheModelTheFieldAndOtherFiles) {
  const std::string prefix = Tokenize("corpus"), other = Tokenize("other", "/other.json");
  EXPECT_THAT(Message(Run(JobOn(prefix, 300))),
              HasSubstr("/corpus.tokenizer/tokenizer.json: wanted a model with a vocabulary of "));
  JobConfig job = JobOn(prefix);
  job.validation->generate = GenerationConfig{
      .prompts = {"the question"}, .tokens = 4, .tokenizer = directory_ + "/other.json"};
  EXPECT_THAT(Message(Run(job)), HasSubstr("validation.generate.tokenizer: " + directory_ +
                                           "/other.json: wanted the tokenizer of the data, "));
  job.validation->generate->tokenizer = directory_ + "/mine.json";
  EXPECT_TRUE(Run(job).status.ok()) << "it is the same at another path";

  const auto blend = [&](const std::string& second) {
    const BlendedDataset first = {.weight = 1, .prefix = prefix, .path = {}};
    const BlendedDataset other = {.weight = 1, .prefix = second, .path = {}};
    return OpenData({.source = BlendData{.datasets = {first, other}},
                     .inputs = TokenInputs(2048),
                     .sequence = 8,
                     .roots = {},
                     .open_lines = OpenChatLines});
  };
  EXPECT_THAT(std::string(blend(other).status().message()),
              ContainsRegex("/other.tokenizer/tokenizer.json: wanted the tokenizer of the other "
                            "datasets, as /.*/corpus.tokenizer/tokenizer.json, found another"));
  const std::string same = Tokenize("same");
  ASSERT_TRUE(blend(same).ok()) << blend(same).status();
  EXPECT_THAT(blend(same)->tokenizer, EndsWith("/same.tokenizer/tokenizer.json"));
  std::filesystem::remove_all(other + ".tokenizer");
  EXPECT_TRUE(blend(other).ok()) << "nobody knows which it is";
  ASSERT_TRUE(MakeDirectories(other + ".tokenizer").ok());
  EXPECT_THAT(std::string(blend(other).status().message()),
              HasSubstr("/other.tokenizer: wanted the file of the tokenizer"));
}

TEST_F(TokenizerOfFiles, PromptsNeedOne) {
  const std::string prefix = Tokenize("corpus");
  std::filesystem::remove_all(prefix + ".tokenizer");
  JobConfig job = JobOn(prefix);
  job.validation->generate = GenerationConfig{.prompts = {"the question"}, .tokens = 4};
  EXPECT_THAT(Message(Run(job)), HasSubstr("validation.generate.tokenizer: wanted the tokenizer of "
                                           "a model with a vocabulary of 2048, since nothing"));
}

// Bug it must catch: a checkpoint keeps another tokenizer than the one that made its ids.
TEST_F(TokenizerOfFiles, MustNotChangeWhileAJobStarts) {
  const std::string prefix = Tokenize("corpus");
  const OpenLineEncoding and_changes = [&](const LineEncodingOptions& options) {
    auto opened = OpenChatLines(options);
    WriteBytes(prefix + ".tokenizer/tokenizer.json", ReadFile(directory_ + "/other.json").value());
    return opened;
  };
  const RankRun run = RunJob(JobOn(prefix), {.open_lines = and_changes})[0];
  EXPECT_THAT(Message(run), HasSubstr("/corpus.tokenizer/tokenizer.json: changed after it had"));
}

}  // namespace
}  // namespace trainyard::testing
