// Proves training on pairs of answers through jobs: layouts of up to four ranks have the
// losses, rewards and validation of one rank, with adapters, too; a job that is stopped goes on to
// the bit, by the reference that its directory keeps; and a reference of other data is refused.

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_join.h"
#include "tests/models/hf/files.h"
#include "tests/models/tiny.h"
#include "tests/train/step/id_lines.h"
#include "tests/train/step/layouts.h"
#include "tests/train/step/run_job.h"
#include "train/data/chat.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kEqual = 1e-10;
constexpr int64_t kVocab = 36, kSequence = 24;

// Lines of a few tokens each, so that a sample has several pairs.
JobConfig PairJob(const std::string& name, PreferenceMethod method = PreferenceMethod::kDpo) {
  const std::string directory = FreshDirectory(name);
  CHECK(MakeDirectories(directory).ok());
  const std::string path = directory + "/pairs.jsonl";
  std::ofstream pairs(path);
  for (int i = 0; i < 60; ++i) {
    const auto ids = [&](int count, uint64_t seed) {
      const std::vector<int32_t> tokens = Tokens(count, kVocab, seed);
      return absl::StrCat("[", absl::StrJoin(tokens, ", "), "]");
    };
    pairs << "{\"prompt\": " << ids(1 + i % 3, uint64_t(i))
          << ", \"chosen\": " << ids(1 + i * 5 % 7, uint64_t(100 + i))
          << ", \"rejected\": " << ids(1 + i * 7 % 5, uint64_t(200 + i)) << "}\n";
  }
  pairs.close();
  JobConfig job = TinyJob(directory + "/run");
  // What every layout divides.
  for (const auto& [field, value] : {std::pair("vocab", kVocab),
                                     {"max_seq", kSequence},
                                     {"layers", 7},
                                     {"hidden", 24},
                                     {"heads", 12},
                                     {"kv_heads", 12},
                                     {"head_dim", 2}}) {
    job.model.architecture->fields[field] = value;
  }
  job.batch = {.global = 12, .micro = 1, .sequence = kSequence};
  job.validation = ValidationConfig{.every_steps = 2};
  job.data = ChatData{.path = path, .tokenizer = path, .validation_fraction = 0.3};
  job.preference = PreferenceConfig{.method = method, .beta = 0.5};
  return job;
}

RunOptions Ranks(int ranks) { return {.ranks = ranks, .open_lines = OpenIdLines}; }

void ExpectSame(const std::vector<RankRun>& runs, const RankRun& alone) {
  for (const RankRun& run : runs) {
    ASSERT_TRUE(run.status.ok()) << run.status;
    ASSERT_EQ(run.records.size(), alone.records.size());
    for (size_t step = 0; step < run.records.size(); ++step) {
      const StepRecord &got = run.records[step], &one = alone.records[step];
      EXPECT_NEAR(got.loss, one.loss, kEqual * one.loss);
      EXPECT_NEAR(got.grad_norm, one.grad_norm, kEqual * one.grad_norm);
      EXPECT_NEAR(*got.chosen_reward, *one.chosen_reward, kEqual);
      EXPECT_NEAR(*got.rejected_reward, *one.rejected_reward, kEqual);
      EXPECT_NEAR(*got.reward_margin, *one.reward_margin, kEqual);
      EXPECT_NEAR(*got.reward_accuracy, *one.reward_accuracy, kEqual);
    }
    const StepRecord &got = run.records.back(), &one = alone.records.back();
    EXPECT_NEAR(*got.validation_loss, *one.validation_loss, kEqual);
    EXPECT_NEAR(*got.validation_reward_margin, *one.validation_reward_margin, kEqual);
    EXPECT_NEAR(*got.validation_reward_accuracy, *one.validation_reward_accuracy, kEqual);
  }
}

class PreferenceLayouts : public ::testing::TestWithParam<PreferenceMethod> {};

TEST_P(PreferenceLayouts, HaveTheLossesOfOneRank) {
  JobConfig job = PairJob(absl::StrCat("preference_layouts_", int(GetParam())), GetParam());
  job.checkpoint.reset();
  const RankRun alone = RunJob(job, Ranks(1))[0];
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  // The reference is that of the first step. In the second one, the pairs have moved apart.
  if (GetParam() == PreferenceMethod::kDpo) {
    EXPECT_NEAR(alone.records[0].loss, std::log(2), 1e-12);
    EXPECT_EQ(*alone.records[0].reward_margin, 0);
    EXPECT_GT(std::abs(*alone.records[1].reward_margin), 1e-6);
  }
  // ORPO differs from DPO in one kernel.
  const int count = GetParam() == PreferenceMethod::kDpo ? 20 : 4;
  for (const LayoutCase& layout : SomeLayoutsOfFour("llama", count)) {
    SCOPED_TRACE(layout.name());
    JobConfig divided = job;
    divided.parallelism = layout.job.parallelism;
    ExpectSame(RunJob(divided, Ranks(int(layout.job.devices))), alone);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, PreferenceLayouts,
                         ::testing::Values(PreferenceMethod::kDpo, PreferenceMethod::kOrpo));

// Micro-batches of other sizes have the same pairs.
TEST(PreferenceJobs, AreTheSameWithAdaptersAndOtherMicroBatches) {
  JobConfig job = PairJob("preference_adapters");
  job.checkpoint.reset();
  job.adapter = AdapterConfig{.lora = LoraConfig{.rank = 2, .alpha = 4}};
  job.optimizer.options["learning_rate"] = 0.1;
  const RankRun alone = RunJob(job, Ranks(1))[0];
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  EXPECT_NEAR(alone.records[0].loss, std::log(2), 1e-12);
  for (const int64_t micro : {2, 6}) {
    job.batch.micro = micro;
    ExpectSame(RunJob(job, Ranks(1)), alone);
  }
  job.batch.micro = 2;
  for (const ParallelismConfig& parallelism :
       {ParallelismConfig{.tensor = 2, .pipeline = 2}, ParallelismConfig{.context = 2},
        ParallelismConfig{.pipeline = 2, .zero = Zero::kFull}}) {
    job.parallelism = parallelism;
    ExpectSame(RunJob(job, Ranks(4)), alone);
  }
}

// Answers of a pair do not see each other through the state of recurrent layers, either.
TEST(PreferenceJobs, OfRecurrentLayersAreTheSameInOtherLayouts) {
  JobConfig job = PairJob("preference_recurrent");
  job.checkpoint.reset();
  job.model.architecture->family = "nemotron_h";
  auto& fields = job.model.architecture->fields;
  fields["hybrid_pattern"] = std::string("M*M-M*M");
  for (const char* field : {"mamba_heads", "mamba_groups", "mamba_head_dim", "mamba_state"}) {
    fields[field] = 4;
  }
  const RankRun alone = RunJob(job, Ranks(1))[0];
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  for (const ParallelismConfig& parallelism :
       {ParallelismConfig{.tensor = 4}, ParallelismConfig{.context = 4},
        ParallelismConfig{.tensor = 2, .context = 2},
        ParallelismConfig{.pipeline = 2, .context = 2}}) {
    job.parallelism = parallelism;
    ExpectSame(RunJob(job, Ranks(4)), alone);
  }
}

TEST(PreferenceJobs, LearnToPreferTheChosenAnswers) {
  for (const PreferenceMethod method : {PreferenceMethod::kDpo, PreferenceMethod::kOrpo}) {
    JobConfig job = PairJob("preference_learns", method);
    job.steps = 12;
    job.checkpoint.reset();
    job.optimizer.clip_norm = 0;
    const RankRun run = RunJob(job, Ranks(1))[0];
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_LT(run.records.back().loss, 0.8 * run.records.front().loss);
    EXPECT_GT(*run.records.back().reward_accuracy, 0.9);
    EXPECT_GT(*run.records.back().reward_margin, 0);
  }
}

// The pairs that are held out are those of the training data. So a validation sees what the next
// step begins with.
TEST(PreferenceJobs, ValidationHasTheRewardsOfHeldOutPairs) {
  for (const PreferenceMethod method : {PreferenceMethod::kDpo, PreferenceMethod::kOrpo}) {
    JobConfig job = PairJob("preference_validation", method);
    std::string lines;
    for (int i = 0; i < 12; ++i) {  // Each fills a sample of its own.
      absl::StrAppend(&lines, "{\"prompt\": [", i, ", 3, 1], \"chosen\": [5, ", i,
                      ", 2, 4, 6], \"rejected\": [7, 8, ", i + 9, ", 1, 1]}\n");
    }
    WriteBytes(job.data.As<ChatData>().path, lines + lines);
    job.data = ChatData{.path = job.data.As<ChatData>().path,
                        .tokenizer = job.data.As<ChatData>().path,
                        .validation_fraction = 0.5};
    job.validation->every_steps = 1;
    job.steps = 4;
    job.checkpoint.reset();
    const RankRun run = RunJob(job, Ranks(1))[0];
    ASSERT_TRUE(run.status.ok()) << run.status;
    for (size_t step = 0; step + 1 < run.records.size(); ++step) {
      const StepRecord &validated = run.records[step], &next = run.records[step + 1];
      EXPECT_NE(*validated.validation_reward_margin, *validated.reward_margin);
      EXPECT_NEAR(*validated.validation_reward_margin, *next.reward_margin, kEqual);
      EXPECT_NEAR(*validated.validation_reward_accuracy, *next.reward_accuracy, kEqual);
      EXPECT_NEAR(*validated.validation_loss, next.loss, kEqual);
    }
  }
}

TEST(PreferenceJobs, ResumeToTheBit) {
  JobConfig job = PairJob("preference_resume");
  job.steps = 6;
  JobConfig whole = job;
  whole.checkpoint->directory += "_whole";
  const RankRun through = RunJob(whole, Ranks(1))[0];
  ASSERT_TRUE(through.status.ok()) << through.status;
  RunOptions options = Ranks(1);
  int64_t most = 2;
  options.stop = [&](int, int64_t finished) { return finished > most; };
  ASSERT_TRUE(RunJob(job, options)[0].status.ok());
  // Twice: the second attempt keeps what it has read.
  for (options.epoch = 2; options.epoch <= 3; ++options.epoch) {
    options.resume = true;
    most = options.epoch == 2 ? 1 : 100;
    const RankRun rest = RunJob(job, options)[0];
    ASSERT_TRUE(rest.status.ok()) << rest.status;
    ASSERT_GT(rest.start.step, 0u);
    if (options.epoch == 3) {
      EXPECT_EQ(rest.records.back().loss, through.records.back().loss);
      EXPECT_EQ(*rest.records.back().chosen_reward, *through.records.back().chosen_reward);
    }
  }
  EXPECT_EQ(NewestDigest(job.checkpoint->directory), NewestDigest(whole.checkpoint->directory));
}

// Bug it must catch: a run that goes on without its reference takes the present weights for it.
TEST(PreferenceJobs, DoNotGoOnWithoutTheirReference) {
  JobConfig job = PairJob("preference_lost");
  job.steps = 6;
  RunOptions options = Ranks(1);
  options.stop = [](int, int64_t finished) { return finished > 2; };
  ASSERT_TRUE(RunJob(job, options)[0].status.ok());
  const std::string file = job.checkpoint->directory + "/epoch-1/reference";
  const std::string kept = *ReadFile(file);
  const auto again = [&](const std::string& contents) {
    std::ofstream(file, std::ios::binary) << contents;
    const RankRun run = RunJob(job, {.epoch = ++options.epoch,
                                     .resume = true,
                                     .stop = options.stop,
                                     .open_lines = OpenIdLines})[0];
    return std::string(run.status.message());
  };
  std::string other = kept;
  other[10] = other[10] == '0' ? '1' : '0';  // Of the digest.
  EXPECT_THAT(again(other), HasSubstr("wanted a reference of this job's data, found one of other"));
  other = kept;
  other.back() ^= 1;
  EXPECT_THAT(again(other), HasSubstr("damaged: another SHA-256"));
  EXPECT_THAT(again("nothing"), HasSubstr("wanted a reference, found another file"));
  std::filesystem::remove(file);
  const RankRun run =
      RunJob(job, {.epoch = ++options.epoch, .resume = true, .open_lines = OpenIdLines})[0];
  EXPECT_THAT(std::string(run.status.message()),
              HasSubstr("wanted what the reference says of the data"));
}

}  // namespace
}  // namespace trainyard::testing
