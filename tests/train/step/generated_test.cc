// Proves what jobs write after validations: layouts of up to four ranks write the texts of one
// rank, which are those of the inference program with its cache of keys and values, also of
// questions, of experts, of recurrent layers and of pairs of answers; and what is trained is the
// same to the bit.

#include <gmock/gmock.h>

#include <atomic>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/models/hf/files.h"
#include "tests/train/generate/chat_model.h"
#include "tests/train/step/id_lines.h"
#include "tests/train/step/layouts.h"
#include "tests/train/step/run_job.h"
#include "train/chat/prompts.h"
#include "train/config/generation.h"
#include "train/data/chat.h"
#include "train/data/text.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

const RunOptions kPrompts = {.open_lines = OpenChatLines, .open_prompts = OpenPromptCodec};

RunOptions Ranks(int ranks) {
  RunOptions options = kPrompts;
  options.ranks = ranks;
  return options;
}

// Bytes, of sizes that every layout divides.
JobConfig TextJob(const std::string& name) {
  const std::string directory = FreshDirectory(name);
  CHECK(MakeDirectories(directory).ok());
  std::string text;
  for (int i = 0; i < 400; ++i) absl::StrAppend(&text, i * i, " of ", i, "; ");
  WriteBytes(directory + "/text.txt", text);
  JobConfig job = TinyJob(directory + "/run");
  for (const auto& [field, value] : {std::pair("vocab", 256),
                                     {"vocab_multiple", 12},
                                     {"max_seq", 24},
                                     {"layers", 7},
                                     {"hidden", 24},
                                     {"heads", 12},
                                     {"kv_heads", 12},
                                     {"head_dim", 2}}) {
    job.model.architecture->fields[field] = int64_t{value};
  }
  job.batch = {.global = 12, .micro = 1, .sequence = 24};
  job.data = TextData{.path = directory + "/text.txt", .validation_fraction = 0.3};
  job.optimizer.options["learning_rate"] = 0.1;
  job.validation =
      ValidationConfig{.every_steps = 2,
                       .batches = 1,
                       .generate = GenerationConfig{
                           .prompts = {"0 of", "a longer one", "7", "12 of 13"}, .tokens = 9}};
  return job;
}

std::vector<std::string> TextsOf(const StepRecord& record) {
  std::vector<std::string> texts;
  for (const GeneratedText& generated : record.generated) texts.push_back(generated.text);
  return texts;
}

// CHECKs that the first rank alone has them.
std::vector<std::string> LastTexts(const std::vector<RankRun>& runs) {
  for (const RankRun& run : runs) {
    CHECK(run.status.ok()) << run.status;
    CHECK(run.records.back().generated.empty() == (&run != &runs[0])) << &run - &runs[0];
  }
  return TextsOf(runs[0].records.back());
}

// Layouts that a seed draws; scripts/layouts.sh runs all.
TEST(Generated, IsThatOfOneRankInEveryLayout) {
  JobConfig job = TextJob("generated_layouts");
  job.checkpoint.reset();
  job.steps = job.validation->every_steps = 1;
  job.validation->generate->tokens = 4;
  const std::vector<std::string> alone = LastTexts(RunJob(job, kPrompts));
  ASSERT_EQ(alone.size(), 4);
  for (const LayoutCase& layout : SomeLayoutsOfFour("llama", 20)) {
    SCOPED_TRACE(layout.name());
    JobConfig divided = job;
    divided.parallelism = layout.job.parallelism;
    EXPECT_EQ(LastTexts(RunJob(divided, Ranks(int(layout.job.devices)))), alone);
  }
  for (const int64_t micro : {2, 6}) {
    job.batch.micro = micro;
    EXPECT_EQ(LastTexts(RunJob(job, kPrompts)), alone) << micro;
    EXPECT_EQ(LastTexts(RunJob(job, Ranks(2))), alone) << micro;
  }
}

// The likeliest tokens by the cache of keys and values, from the checkpoint of the same step.
std::string WrittenLater(const JobConfig& job, GenerateOptions options) {
  options.model.checkpoint = job.checkpoint->directory;
  options.sampling.temperature = 0;
  options.tokens = job.validation->generate->tokens;
  std::string text;
  const absl::Status status = Generate(
      options, CpuBackend(), [&](absl::string_view more) { absl::StrAppend(&text, more); });
  CHECK(status.ok()) << status;
  return text;
}

TEST(Generated, IsWhatTheCheckpointWrites) {
  JobConfig job = TextJob("generated_checkpoint");
  job.steps = 12;
  job.validation->generate->temperature = 0;
  const std::vector<std::string> texts = LastTexts(RunJob(job, kPrompts));
  std::set<std::string> different;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string& prompt = job.validation->generate->prompts[i];
    EXPECT_EQ(texts[i], WrittenLater(job, {.prompt = prompt})) << prompt;
    EXPECT_EQ(texts[i].size(), 9) << prompt;
    different.insert(texts[i]);
  }
  EXPECT_GT(different.size(), 1);  // Otherwise this test could not see an exchange of texts.
}

// A validation draws with the same numbers as the one before, so that texts can be compared.
TEST(Generated, FollowsTheModelAlone) {
  JobConfig job = TextJob("generated_again");
  job.steps = 4;
  job.checkpoint.reset();
  job.optimizer.options["learning_rate"] = 1e-300;
  const RankRun still = RunJob(job, kPrompts)[0];
  EXPECT_EQ(TextsOf(still.records[1]), TextsOf(still.records[3]));
  EXPECT_THAT(TextsOf(still.records[0]), ::testing::IsEmpty());
  job.validation->generate->temperature = 0;
  EXPECT_NE(TextsOf(RunJob(job, kPrompts)[0].records[3]), TextsOf(still.records[3]));
}

TEST(Generated, DrawsForEachPromptAnew) {
  JobConfig job = TextJob("generated_twice");
  job.checkpoint.reset();
  job.validation->generate->prompts = {"x", "x", "x"};
  const std::vector<std::string> texts = LastTexts(RunJob(job, kPrompts));
  EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()).size(), 3);
}

TEST(Generated, EndsWhereTheSequenceEnds) {
  JobConfig job = TextJob("generated_long");
  job.checkpoint.reset();
  job.validation->generate->prompts = {std::string(23, 'x'), std::string(20, 'x'), "x"};
  job.validation->generate->tokens = 100;
  const std::vector<std::string> texts = LastTexts(RunJob(job, kPrompts));
  EXPECT_EQ(texts[0].size(), 1);
  EXPECT_EQ(texts[1].size(), 4);
  EXPECT_EQ(texts[2].size(), 23);
  job.validation->generate->prompts[1] = std::string(24, 'x');
  EXPECT_THAT(RunJob(job, kPrompts)[0].status.ToString(),
              HasSubstr("validation.generate.prompts[1]: wanted 1 to 23 tokens, fewer than "
                        "batch.sequence; found 24"));
}

// Ranks that share a key's head; a tokenizer with fewer ids than the model, of which tensor ranks
// have none; and more sequences in a micro-batch than texts.
TEST(Generated, IsThatOfOneRankWhereHeadsAreSharedAndIdsAreFew) {
  JobConfig job = TextJob("generated_replicas");
  job.checkpoint.reset();
  job.model.architecture->fields["kv_heads"] = int64_t{2};
  job.model.architecture->fields["vocab"] = int64_t{600};
  job.batch = {.global = 12, .micro = 12, .sequence = 24};
  const std::vector<std::string> alone = LastTexts(RunJob(job, kPrompts));
  for (const ParallelismConfig& parallelism :
       {ParallelismConfig{.tensor = 4}, ParallelismConfig{.tensor = 2, .context = 2}}) {
    job.parallelism = parallelism;
    EXPECT_EQ(LastTexts(RunJob(job, Ranks(4))), alone);
  }
}

// In halves the ranks' logits differ by rounding. The likeliest token of a trained model does not.
TEST(Generated, IsWrittenInHalves) {
  JobConfig job = TextJob("generated_halves");
  job.precision = PrecisionName::kBF16;
  job.steps = 30;
  job.validation->every_steps = 30;
  job.optimizer.options["learning_rate"] = 0.02;
  job.validation->generate->temperature = 0;
  job.validation->generate->tokens = 3;
  const std::vector<std::string> alone = LastTexts(RunJob(job, kPrompts));
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(alone[i], WrittenLater(job, {.prompt = job.validation->generate->prompts[i]}));
  }
}

// Bug it must catch: a rank goes on with a text that the others have ended, and waits for them.
TEST(Generated, EndsEarlyWhereOneRankIsToStop) {
  JobConfig job = TextJob("generated_stopped");
  job.steps = 4;
  RunOptions options = Ranks(2);
  std::atomic<bool> validates = false;
  options.progress = [&](int rank, const char* phase, int64_t) {
    validates = validates || (rank == 1 && absl::string_view(phase) == "validation");
  };
  options.stop = [&](int rank, int64_t) { return rank == 1 && validates; };
  for (const RankRun& run : RunJob(job, options)) {
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_EQ(run.records.size(), 3);  // The stop is agreed on with the next step.
    EXPECT_TRUE(run.records[1].generated.empty()) << "half a text looks like an answer";
  }
}

TEST(Generated, ChangesNothingThatIsTrained) {
  JobConfig job = TextJob("generated_same");
  job.steps = 4;
  const std::vector<RankRun> with = RunJob(job, Ranks(2));
  const std::string digest = NewestDigest(job.checkpoint->directory);
  job.checkpoint->directory = FreshDirectory("generated_none");
  job.validation->generate.reset();
  const std::vector<RankRun> without = RunJob(job, Ranks(2));
  EXPECT_EQ(NewestDigest(job.checkpoint->directory), digest);
  for (size_t step = 0; step < 4; ++step) {
    EXPECT_EQ(with[0].records[step].loss, without[0].records[step].loss);
    EXPECT_EQ(with[0].records[step].validation_loss, without[0].records[step].validation_loss);
  }
}

TEST(Generated, IsTheSameOfExpertsAndRecurrentLayers) {
  JobConfig job = TextJob("generated_families");
  job.checkpoint.reset();
  auto& fields = job.model.architecture->fields;
  const auto expect_same = [&](const std::vector<ParallelismConfig>& layouts) {
    job.parallelism = {};
    const std::vector<std::string> alone = LastTexts(RunJob(job, kPrompts));
    for (const ParallelismConfig& parallelism : layouts) {
      job.parallelism = parallelism;
      EXPECT_EQ(LastTexts(RunJob(job, Ranks(4))), alone) << job.model.architecture->family;
    }
  };
  job.model.architecture->family = "nemotron_h";
  fields["hybrid_pattern"] = std::string("M*M-M*M");
  for (const char* field : {"mamba_heads", "mamba_groups", "mamba_head_dim", "mamba_state"}) {
    fields[field] = int64_t{4};
  }
  expect_same(
      {{.tensor = 4}, {.context = 4}, {.tensor = 2, .context = 2}, {.pipeline = 2, .context = 2}});
  for (const char* field :
       {"hybrid_pattern", "mamba_heads", "mamba_groups", "mamba_head_dim", "mamba_state"}) {
    fields.erase(field);
  }
  job.model.architecture->family = "mixtral";
  fields["moe.experts"] = int64_t{4};
  fields["moe.top_k"] = int64_t{2};
  fields["moe.expert_ffn"] = int64_t{8};
  expect_same({{.expert = 4},
               {.tensor = 2, .expert = 2},
               {.pipeline = 2, .context = 2},
               {.zero = Zero::kFull}});
}

// The loss of pairs is made of the same head.
TEST(Generated, IsThatOfPairsOfAnswersToo) {
  JobConfig job = TextJob("generated_pairs");
  const std::string directory = FreshDirectory("generated_pairs_data");
  CHECK(MakeDirectories(directory).ok());
  std::string pairs;
  for (int i = 0; i < 60; ++i) {
    absl::StrAppend(&pairs, "{\"prompt\": [", i, ", 3], \"chosen\": [5, ", i,
                    ", 2], \"rejected\": [7, 8]}\n");
  }
  WriteBytes(directory + "/pairs.jsonl", pairs);
  job.data = ChatData{.path = directory + "/pairs.jsonl",
                      .tokenizer = directory + "/pairs.jsonl",
                      .validation_fraction = 0.3};
  job.preference = PreferenceConfig{.beta = 0.5};
  job.validation->batches = 0;
  job.checkpoint.reset();
  RunOptions options = kPrompts;
  options.open_lines = OpenIdLines;
  options.open_prompts = [](const PromptOptions& asked) {
    return OpenPromptCodec({.vocab = asked.vocab});  // Bytes.
  };
  const std::vector<std::string> alone = LastTexts(RunJob(job, options));
  options.ranks = 4;
  for (const ParallelismConfig& parallelism :
       {ParallelismConfig{.tensor = 4}, ParallelismConfig{.pipeline = 2, .context = 2}}) {
    job.parallelism = parallelism;
    EXPECT_EQ(LastTexts(RunJob(job, options)), alone);
  }
}

class GeneratedAnswers : public ChatModel {};

// A question in the format of the run, whose answer ends where the model ends it.
TEST_F(GeneratedAnswers, AreThoseOfTheCheckpoint) {
  JobConfig job = Job("generated_answers", "chatml");
  job.checkpoint->directory = FreshDirectory("generated_answers_run");
  job.validation->generate = GenerationConfig{.prompts = {"What is 3?", "Who?"},
                                              .tokens = 20,
                                              .temperature = 0,
                                              .tokenizer = job.data.As<ChatData>().tokenizer};
  const RankRun run = RunJob(job, kPrompts)[0];
  ASSERT_TRUE(run.status.ok()) << run.status;
  const std::vector<std::string> texts = TextsOf(run.records.back());
  EXPECT_EQ(texts[0], "a number");
  EXPECT_EQ(texts[1], *Answer(job, {.chat = "Who?"}));
}

}  // namespace
}  // namespace trainyard::testing
