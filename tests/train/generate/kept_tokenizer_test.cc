// Proves that checkpoints keep the tokenizer that a spec has named: they are asked, exported and
// gone on with although it is gone from where the spec has it.

#include <gmock/gmock.h>

#include <filesystem>

#include "common/canonical.h"
#include "tests/train/generate/chat_model.h"
#include "train/data/text.h"
#include "train/generate/tokenizer_of.h"
#include "train/hf/carried_files.h"
#include "train/hf/export.h"
#include "train/hf/special_tokens.h"

namespace trainyard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::string Contents(const std::string& path) { return ReadCanonical(path, 1 << 26).value(); }

TEST(TokenizerToKeep, HasTheNameByWhichOthersKnowIt) {
  const std::string directory = FreshDirectory("tokenizer_to_keep");
  ASSERT_TRUE(MakeDirectories(directory).ok());
  const auto kept = [&](const std::string& name, const std::string& text) {
    WriteBytes(directory + "/" + name, text);
    const KeptFiles files = TokenizerToKeep(directory + "/" + name).value();
    EXPECT_EQ(files.size(), 1u);
    EXPECT_EQ(files.begin()->second, text);
    return files.begin()->first;
  };
  EXPECT_EQ(kept("mine.json", " {\"model\": 1}"), "tokenizer.json");
  EXPECT_EQ(kept("v3.json", "{\"config\": {\"num_vocab_tokens\": 9}}"), "tekken.json");
  EXPECT_EQ(kept("qwen.tiktoken", "IQ== 0"), "qwen.tiktoken");
  EXPECT_EQ(kept("spiece.model", "\n\x05"), "spiece.model");
  EXPECT_EQ(kept("mine.model", "\n\x05"), "tokenizer.model");
}

TEST(TokenizerToKeep, HasWhatLiesBesideItAndNothingElse) {
  const std::string directory = FreshDirectory("tokenizer_beside");
  ASSERT_TRUE(MakeDirectories(directory).ok());
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "tokenizer.model", "config.json", "run.py"}) {
    WriteBytes(directory + "/" + name, "{}");
  }
  const auto names = [](const KeptFiles& files) {
    std::vector<std::string> all;
    for (const auto& [name, text] : files) all.push_back(name);
    return all;
  };
  const auto wanted = ElementsAre("chat_template.jinja", "tokenizer.json", "tokenizer_config.json");
  EXPECT_THAT(names(TokenizerToKeep(directory).value()), wanted);
  EXPECT_THAT(names(TokenizerToKeep(directory + "/tokenizer.json").value()), wanted);
  EXPECT_FALSE(TokenizerToKeep(directory + "/nowhere").ok());
}

class KeptTokenizer : public ChatModel {
 protected:
  static std::string Newest(const JobConfig& job) {
    return FindCheckpoint(job.checkpoint->directory)->checkpoint->path();
  }
  static std::string Ask(const JobConfig& job) {
    GenerateOptions options;
    options.chat = "What is 3?";
    return Answer(job, options).value();
  }
  // Exports the newest checkpoint. Returns the directory.
  static std::string Export(const JobConfig& job, const std::string& name) {
    const std::string to = FreshDirectory(name);
    const auto checkpoint = Checkpoint::Open(Newest(job));
    const auto exported = ExportHf(*checkpoint, {.to = to}, LocalStorage());
    EXPECT_TRUE(exported.ok()) << exported.status();
    return to;
  }
};

TEST_F(KeptTokenizer, AnswersAndGoesWithExportsOnceItsFileIsGone) {
  JobConfig job = Job("kept_tokenizer", "chatml");
  const std::string tokenizer = job.data.As<ChatData>().tokenizer;
  const std::string bytes = Contents(tokenizer), answer = Ask(job);
  std::filesystem::remove(tokenizer);
  EXPECT_EQ(Ask(job), answer);
  EXPECT_EQ(Contents(Export(job, "kept_tokenizer_out") + "/tokenizer.json"), bytes);
  // Nor does what a copy of the run has left beside it.
  WriteBytes(Newest(job) + "/tokenizer/._tokenizer.json", "junk");
  EXPECT_EQ(Ask(job), answer);
  // What another file at its path would say does not count either.
  WriteBytes(tokenizer, "{}");
  EXPECT_EQ(Ask(job), answer);
}

// Of another job that began with its parameters, and named none.
TEST_F(KeptTokenizer, IsThatOfTheRunFromWhichAnotherBegan) {
  JobConfig job = Job("kept_tokenizer_first", "chatml");
  const std::string bytes = Contents(job.data.As<ChatData>().tokenizer);
  JobConfig next = job;
  next.init_from = job.checkpoint->directory;
  next.checkpoint->directory += "_next";
  next.data = SyntheticData{};
  next.validation.reset();
  next.steps = 1;
  const RankRun run = RunJob(next, {.job_id = "j-2"})[0];
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(KeptVocabulary(Newest(next)), "") << "it is there once";
  EXPECT_EQ(KeeperOfTokenizer(Newest(next)).value(), Newest(job));
  EXPECT_EQ(Contents(Export(next, "kept_tokenizer_next_out") + "/tokenizer.json"), bytes);
}

// The nearest one counts: an imported model's own, where no spec has named another since.
TEST_F(KeptTokenizer, TakesThePlaceOfTheImportedOne) {
  const JobConfig job = Job("kept_beside_imported", "chatml");
  const std::string checkpoint = Newest(job);
  const KeptFiles imported = {{"config.json", "{}"},
                              {"import.json", R"({"version": 1, "dtype": "F32", "others": {}})"},
                              {"tokenizer.model", "another"},
                              {"generation_config.json", R"({"eos_token_id": 7, "top_k": 2})"}};
  ASSERT_TRUE(WriteKept(imported, checkpoint, LocalStorage()).ok());
  const std::string to = FreshDirectory("kept_beside_imported_out");
  ASSERT_TRUE(MakeDirectories(to).ok());
  const auto names = WriteCarried(checkpoint, FindOrigin(checkpoint).value(), to, LocalStorage());
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names, UnorderedElementsAre("generation_config.json", "tokenizer.json"));
  // Its ids are those of another tokenizer, and this one does not say how texts end.
  EXPECT_EQ(nlohmann::json::parse(Contents(to + "/generation_config.json")),
            (nlohmann::json{{"eos_token_id", nullptr}, {"top_k", 2}}));
  std::filesystem::remove_all(checkpoint + "/" + kTokenizerName);
  EXPECT_EQ(KeeperOfTokenizer(checkpoint).value(), std::nullopt);
  EXPECT_THAT(*WriteCarried(checkpoint, FindOrigin(checkpoint).value(), to, LocalStorage()),
              UnorderedElementsAre("generation_config.json", "tokenizer.model"));
}

// Bug it must catch: programs that read an export stop at a token of the imported tokenizer.
TEST_F(KeptTokenizer, SaysWhereTextsEnd) {
  const JobConfig job = Job("kept_tokenizer_ends", "chatml");
  WriteBytes(Newest(job) + "/tokenizer/tokenizer_config.json",
             R"({"bos_token": null, "eos_token": {"content": "<|im_end|>"}})");
  const nlohmann::json config =
      nlohmann::json::parse(Contents(Export(job, "kept_tokenizer_ends_out") + "/config.json"));
  const auto opened = OpenTokenizer(job.data.As<ChatData>().tokenizer);
  EXPECT_EQ(config.at("eos_token_id"), *opened->tokenizer->Find("<|im_end|>"));
  EXPECT_EQ(config.at("bos_token_id"), nullptr);
}

// As of SentencePiece, which has no tokenizer.json.
TEST(SpecialTokens, AreFoundInTheConfigAlone) {
  const KeptFiles files = {{"tokenizer_config.json", R"({
    "bos_token": {"content": "<s>"}, "eos_token": "</s>",
    "added_tokens_decoder": {"1": {"content": "<s>"}, "2": {"content": "</s>"}}})"}};
  nlohmann::json config = {{"bos_token_id", 7}, {"eos_token_id", 7}};
  SetSpecialTokens(files, nullptr, /*padding=*/false, config);
  EXPECT_EQ(config.dump(), R"({"bos_token_id":1,"eos_token_id":2})");
}

// Bug it must catch: a model that was trained on chats with the imported model's vocabulary goes on
// after its answers, because the export names the token that ended the imported model's texts.
TEST(SpecialTokens, OfTheSameVocabularyStayUnlessTheTokenizerNamesOthers) {
  const std::string vocabulary = R"({"added_tokens": [
    {"id": 1, "content": "<s>"}, {"id": 2, "content": "</s>"}, {"id": 3, "content": "<|end|>"}]})";
  const auto files = [&](const std::string& config) {
    KeptFiles files = {{"tokenizer.json", vocabulary}};
    if (!config.empty()) files["tokenizer_config.json"] = config;
    return files;
  };
  const KeptFiles imported = files(R"({"bos_token": "<s>", "eos_token": "</s>"})");
  const auto set = [&](const std::string& own, const KeptFiles& theirs, nlohmann::json eos) {
    nlohmann::json config = {{"bos_token_id", 1}, {"eos_token_id", std::move(eos)}};
    SetSpecialTokens(files(own), &theirs, /*padding=*/false, config);
    EXPECT_EQ(config.at("bos_token_id"), 1) << own;
    return config.at("eos_token_id").dump();
  };
  EXPECT_EQ(set(R"({"eos_token": "<|end|>"})", imported, 2), "3");
  EXPECT_EQ(set(R"({"eos_token": "<|end|>"})", files(""), 2), "3");
  EXPECT_EQ(set(R"({"eos_token": "<|end|>"})", imported, {2, 3}), "[2,3]");
  EXPECT_EQ(set(R"({"eos_token": "<|end|>"})", imported, {1, 2}), "3");
  EXPECT_EQ(set(R"({"eos_token": "</s>"})", imported, 3), "3") << "the import says so, too";
  EXPECT_EQ(set("", imported, 2), "2");
  EXPECT_EQ(set(R"({"eos_token": null})", imported, 2), "2");
}

// A text that a tokenizer encodes trains, resumes to the bit without the tokenizer's file, and the
// model writes in its tokens.
TEST_F(KeptTokenizer, OfATextIsKeptToo) {
  const std::string directory = FreshDirectory("kept_tokenizer_text");
  ASSERT_TRUE(MakeDirectories(directory).ok());
  WriteBytes(directory + "/mine.json", OpenGoldenChat("chatml").tokenizer_json);
  std::string text;
  for (int i = 0; i < 60; ++i) absl::StrAppend(&text, "the question and the answer\n\n");
  WriteBytes(directory + "/text.txt", text);
  JobConfig job = TinyJob(directory + "/run");
  job.model.architecture->fields["vocab"] = int64_t{2048};
  job.steps = 120;
  job.optimizer.clip_norm = 0;
  job.data = TextData{.path = directory + "/text.txt",
                      .validation_fraction = 0.2,
                      .tokenizer_path = directory + "/mine.json"};
  job.validation = ValidationConfig{.every_steps = 20, .batches = 1};
  JobConfig whole = job;
  whole.checkpoint->directory += "_whole";
  const RunOptions encodes = {.open_lines = OpenChatLines};
  const RankRun through = RunJob(whole, encodes)[0];
  ASSERT_TRUE(through.status.ok()) << through.status;
  RunOptions stops = encodes;
  stops.stop = [](int, int64_t finished) { return finished > 20; };
  ASSERT_TRUE(RunJob(job, stops)[0].status.ok());
  std::filesystem::remove(directory + "/mine.json");
  RunOptions resumes = encodes;
  resumes.epoch = 2;
  resumes.resume = true;
  const RankRun rest = RunJob(job, resumes)[0];
  ASSERT_TRUE(rest.status.ok()) << rest.status;
  ASSERT_GT(rest.start.step, 0u);
  EXPECT_EQ(NewestDigest(job.checkpoint->directory), NewestDigest(whole.checkpoint->directory));
  EXPECT_LT(*rest.records.back().validation_loss, 1.0) << "the text repeats itself";
  GenerateOptions options;
  options.prompt = "the question and";
  EXPECT_THAT(Answer(job, options).value(), HasSubstr(" the answer\n\nthe question"));
  const auto opened = TokenizerOf(Newest(job), 2048);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->path, KeptVocabulary(Newest(job)));
  // Another one is named by the field of the spec.
  WriteBytes(directory + "/mine.json", OpenGoldenChat("chatml").tokenizer_json + "\n");
  job.steps += 2;
  RunOptions another = encodes;
  another.epoch = 3;
  another.resume = true;
  EXPECT_THAT(std::string(RunJob(job, another)[0].status.message()),
              HasSubstr("data.text.tokenizer_path: " + directory + "/mine.json is not the file"));
}

TEST_F(KeptTokenizer, AnotherPathThatIsWrongIsRefused) {
  JobConfig job = Job("kept_tokenizer_wrong", "chatml");
  std::string& tokenizer = *TokenizerIn(job.data);
  const std::string right = tokenizer;
  std::filesystem::remove(right);
  job.steps += 2;
  tokenizer = right + "-typo";
  const RankRun wrong = RunJob(job, {.epoch = 2, .resume = true, .open_lines = OpenChatLines})[0];
  EXPECT_THAT(std::string(wrong.status.message()), HasSubstr("-typo"));
  tokenizer = right;
  const RankRun again = RunJob(job, {.epoch = 3, .resume = true, .open_lines = OpenChatLines})[0];
  EXPECT_TRUE(again.status.ok()) << again.status;
}

TEST_F(KeptTokenizer, AnotherOneIsNoticed) {
  JobConfig job = Job("kept_tokenizer_other", "chatml");
  WriteBytes(job.data.As<ChatData>().tokenizer, Contents(job.data.As<ChatData>().tokenizer) + "\n");
  job.steps += 2;
  const RankRun again = RunJob(job, {.epoch = 2, .resume = true, .open_lines = OpenChatLines})[0];
  EXPECT_THAT(std::string(again.status.message()), HasSubstr("data.chat.tokenizer"));
}

}  // namespace
}  // namespace trainyard::testing
