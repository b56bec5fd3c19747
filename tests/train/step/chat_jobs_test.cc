// Proves training on files of chats through jobs: every gang has the losses of one rank, a job that
// is stopped goes on to the bit, and another tokenizer or file is noticed when it does.

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/train/chat/golden_chat.h"
#include "tests/train/step/run_job.h"
#include "train/chat/chat_lines.h"
#include "train/data/chat.h"
#include "train/hf/carried_files.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kEqual = 1e-10;
const RunOptions kLines = {.open_lines = OpenChatLines};

JobConfig ChatJob(const std::string& name) {
  const std::string directory = FreshDirectory(name);
  CHECK(MakeDirectories(directory).ok());
  std::ofstream(directory + "/tokenizer.json") << OpenGoldenChat("chatml").tokenizer_json;
  std::ofstream chats(directory + "/chats.jsonl");
  for (int i = 0; i < 60; ++i) {
    chats << R"({"messages": [{"role": "user", "content": "question )" << i
          << R"("}, {"role": "assistant", "content": ")" << std::string(size_t(1 + i * 5 % 9), 'a')
          << i << "\"}]}\n";
  }
  JobConfig job = TinyJob(directory + "/run");
  job.model.architecture->fields["vocab"] = int64_t{2048};
  job.model.architecture->fields["max_seq"] = int64_t{96};
  job.batch.sequence = 96;
  job.validation = ValidationConfig{.every_steps = 2};
  job.data = ChatData{.path = directory + "/chats.jsonl",
                      .tokenizer = directory + "/tokenizer.json",
                      .format = "chatml",
                      .validation_fraction = 0.3};
  return job;
}

struct ChatGang {
  const char* name;
  int ranks;
  ParallelismConfig parallelism;
};

class ChatGangs : public ::testing::TestWithParam<const char*> {};

// The positions of gpt3 are learnt.
TEST_P(ChatGangs, AreTheSame) {
  JobConfig job = ChatJob(absl::StrCat("chat_jobs_", GetParam()));
  job.checkpoint.reset();
  job.model.architecture->family = GetParam();
  if (absl::string_view(GetParam()) == "gpt3") {
    for (const char* field : {"kv_heads", "head_dim"}) job.model.architecture->fields.erase(field);
  }
  if (absl::string_view(GetParam()) == "nemotron_h") {
    auto& fields = job.model.architecture->fields;
    fields["layers"] = 4;
    fields["hybrid_pattern"] = std::string("M*M-");
    for (const char* field : {"mamba_heads", "mamba_head_dim", "mamba_state"}) fields[field] = 4;
    fields["mamba_groups"] = 2;
  }
  const RankRun alone = RunJob(job, kLines)[0];
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  ASSERT_EQ(alone.records.size(), 2u);
  for (const ChatGang& gang :
       {ChatGang{"data", 4, {}}, ChatGang{"full", 2, {.zero = Zero::kFull}},
        ChatGang{"tensor", 2, {.tensor = 2}}, ChatGang{"pipeline", 2, {.pipeline = 2}},
        ChatGang{"ring", 2, {.context = 2}}, ChatGang{"both", 4, {.tensor = 2, .context = 2}}}) {
    SCOPED_TRACE(gang.name);
    JobConfig divided = job;
    divided.parallelism = gang.parallelism;
    for (const RankRun& run : RunJob(divided, {.ranks = gang.ranks, .open_lines = OpenChatLines})) {
      ASSERT_TRUE(run.status.ok()) << run.status;
      for (size_t step = 0; step < 2; ++step) {
        const StepRecord &got = run.records[step], &one = alone.records[step];
        EXPECT_NEAR(got.loss, one.loss, kEqual * one.loss);
        EXPECT_NEAR(got.grad_norm, one.grad_norm, kEqual * one.grad_norm);
        EXPECT_NEAR(got.model_flops, one.model_flops, 1e-9 * one.model_flops);
      }
      EXPECT_NEAR(*run.records[1].validation_loss, *alone.records[1].validation_loss,
                  kEqual * *alone.records[1].validation_loss);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ChatGangs, ::testing::Values("llama", "gpt3", "nemotron_h"));

// Bug it must catch: the loss is that of the first conversations, or counts some twice, as the
// batch's size has it.
TEST(ChatJobs, ValidateEachConversationOnceWhateverTheBatchIs) {
  JobConfig job = ChatJob("chat_validation");
  job.checkpoint.reset();
  job.optimizer.options["learning_rate"] = 1e-30;
  std::vector<double> losses;
  for (const auto& [global, batches] :
       {std::pair{1, 0}, {4, 0}, {16, 0}, {64, 0}, {16, 3}, {1, 1}}) {
    job.batch.global = global;
    job.validation->batches = batches;
    const RankRun run = RunJob(job, kLines)[0];
    ASSERT_TRUE(run.status.ok()) << run.status;
    losses.push_back(*run.records.back().validation_loss);
  }
  for (size_t i = 1; i + 1 < losses.size(); ++i) EXPECT_NEAR(losses[i], losses[0], 1e-12) << i;
  EXPECT_GT(std::abs(losses.back() - losses[0]), 1e-6) << "one of the samples";
}

TEST(ChatJobs, LearnAnswersAlone) {
  JobConfig job = ChatJob("chat_answers");
  job.steps = 60;
  job.optimizer.clip_norm = 0;
  job.checkpoint.reset();
  const RankRun run = RunJob(job, kLines)[0];
  ASSERT_TRUE(run.status.ok()) << run.status;
  // The answers have a few tokens, which come again and again.
  EXPECT_LT(run.records.back().loss, 0.5 * run.records.front().loss);
}

TEST(ChatJobs, ResumeToTheBit) {
  JobConfig job = ChatJob("chat_resume");
  job.steps = 6;
  JobConfig whole = job;
  whole.checkpoint->directory += "_whole";
  const RankRun through = RunJob(whole, kLines)[0];
  ASSERT_TRUE(through.status.ok()) << through.status;
  const auto stop = [](int, int64_t finished) { return finished > 3; };
  ASSERT_TRUE(RunJob(job, {.stop = stop, .open_lines = OpenChatLines})[0].status.ok());
  const std::vector<RankRun> rest =
      RunJob(job, {.epoch = 2, .resume = true, .open_lines = OpenChatLines});
  ASSERT_TRUE(rest[0].status.ok()) << rest[0].status;
  ASSERT_GT(rest[0].start.step, 0u);
  EXPECT_EQ(rest[0].records.back().loss, through.records.back().loss);
  EXPECT_EQ(NewestDigest(job.checkpoint->directory), NewestDigest(whole.checkpoint->directory));
}

// Bug it must catch: a directory of weights that was needed once must stay for as long as the job
// may start again.
TEST(ChatJobs, TakeTheTokenizerThatTheirCheckpointsKeep) {
  JobConfig job = ChatJob("chat_kept");
  job.steps = 6;
  JobConfig whole = job;
  whole.checkpoint->directory += "_whole";
  ASSERT_TRUE(RunJob(whole, kLines)[0].status.ok());
  const auto stop = [](int, int64_t finished) { return finished > 3; };
  ASSERT_TRUE(RunJob(job, {.stop = stop, .open_lines = OpenChatLines})[0].status.ok());
  // As of a job that has imported its model from a directory that is gone.
  const std::string tokenizer = job.data.As<ChatData>().tokenizer;
  const std::string kept = KeptPath(Newest(job.checkpoint->directory).path());
  std::filesystem::create_directories(kept);
  std::filesystem::rename(tokenizer, kept + "/tokenizer.json");
  job.model.import_path = tokenizer + "_gone";
  job.data.As<ChatData>().tokenizer = job.model.import_path;
  const RunOptions resume = {.epoch = 2, .resume = true, .open_lines = OpenChatLines};
  const RankRun rest = RunJob(job, resume)[0];
  ASSERT_TRUE(rest.status.ok()) << rest.status;
  ASSERT_GT(rest.start.step, 0u);
  EXPECT_EQ(NewestDigest(job.checkpoint->directory), NewestDigest(whole.checkpoint->directory));
}

TEST(ChatJobs, NoticeAnotherTokenizer) {
  JobConfig job = ChatJob("chat_tokenizer");
  job.steps = 6;
  const auto stop = [](int, int64_t finished) { return finished > 3; };
  ASSERT_TRUE(RunJob(job, {.stop = stop, .open_lines = OpenChatLines})[0].status.ok());
  std::ofstream(job.data.As<ChatData>().tokenizer, std::ios::app) << "\n";
  const RankRun again = RunJob(job, {.epoch = 2, .resume = true, .open_lines = OpenChatLines})[0];
  EXPECT_FALSE(again.status.ok());
  EXPECT_THAT(std::string(again.status.message()), HasSubstr("data.chat.tokenizer"));
}

}  // namespace
}  // namespace trainyard::testing
