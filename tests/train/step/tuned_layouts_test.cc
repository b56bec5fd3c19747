// Proves that jobs which tune a model give the same in layouts of eight ranks as on one: an adapter
// beside a frozen base, the answers of packed conversations, and pairs of answers. Layouts are
// drawn by a printed seed, six of each, or thirty where $TRAINYARD_LAYOUTS is "all". Compared are
// losses, gradient norms, rewards, validation, and the last checkpoint.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "absl/strings/str_join.h"
#include "tests/models/tiny.h"
#include "tests/train/step/id_lines.h"
#include "tests/train/step/layouts.h"
#include "tests/train/step/run_job.h"
#include "train/data/chat.h"

namespace trainyard::testing {
namespace {

constexpr double kSameAsOne = 1e-10;
constexpr int64_t kTunedVocab = 40, kTunedSequence = 48;

std::string TunedIds(int64_t count, uint64_t seed) {
  return absl::StrCat("[", absl::StrJoin(Tokens(count, kTunedVocab, seed), ", "), "]");
}

// Conversations of two turns, or pairs of answers, of which a sample has several.
void WriteTunedLines(const std::string& path, bool pairs) {
  std::ofstream lines(path);
  for (int i = 0; i < 120; ++i) {
    const std::string question = TunedIds(1 + i % 5, uint64_t(i));
    const std::string answer = TunedIds(1 + i * 5 % 11, uint64_t(200 + i));
    const std::string other = TunedIds(1 + i * 7 % 9, uint64_t(400 + i));
    if (pairs) {
      lines << "{\"prompt\": " << question << ", \"chosen\": " << answer
            << ", \"rejected\": " << other << "}\n";
      continue;
    }
    lines << "{\"segments\": [{\"ids\": " << question << ", \"train\": false}, {\"ids\": " << answer
          << ", \"train\": true}, {\"ids\": " << question
          << ", \"train\": false}, {\"ids\": " << other << ", \"train\": true}]}\n";
  }
}

enum class Tuned { kLora, kChats, kDpo };
constexpr const char* kTunedNames[] = {"lora", "chats", "dpo"};

// Of sizes that every layout of eight ranks divides.
JobConfig TunedJob(Tuned tuned) {
  const std::string directory =
      FreshDirectory(absl::StrCat("tuned_layouts_", kTunedNames[int(tuned)]));
  CHECK(MakeDirectories(directory).ok());
  JobConfig job = TinyJob(directory + "/run");
  for (const auto& [field, value] : {std::pair("vocab", kTunedVocab),
                                     {"max_seq", kTunedSequence},
                                     {"layers", 15},
                                     {"hidden", 16},
                                     {"heads", 8},
                                     {"kv_heads", 8},
                                     {"head_dim", 2}}) {
    job.model.architecture->fields[field] = value;
  }
  job.batch = {.global = 16, .micro = 1, .sequence = kTunedSequence};
  job.steps = 3;
  if (tuned == Tuned::kLora) {
    job.adapter = AdapterConfig{.lora = LoraConfig{.rank = 2, .alpha = 4, .dora = true}};
    job.optimizer.options["learning_rate"] = 0.1;
    return job;
  }
  const std::string path = directory + "/lines.jsonl";
  WriteTunedLines(path, tuned == Tuned::kDpo);
  job.data = ChatData{.path = path, .tokenizer = path, .validation_fraction = 0.2};
  job.validation = ValidationConfig{.every_steps = 3};
  if (tuned == Tuned::kDpo) job.preference = PreferenceConfig{.beta = 0.5};
  return job;
}

void ExpectSameNumber(const std::optional<double>& got, const std::optional<double>& one) {
  ASSERT_EQ(got.has_value(), one.has_value());
  if (!one) return;
  EXPECT_NEAR(*got, *one, kSameAsOne * std::max(1.0, std::abs(*one)));
}

void ExpectSameStep(const StepRecord& got, const StepRecord& one) {
  ExpectSameNumber(got.loss, one.loss);
  EXPECT_NEAR(got.grad_norm, one.grad_norm, kSameAsOne * one.grad_norm);
  ExpectSameNumber(got.validation_loss, one.validation_loss);
  ExpectSameNumber(got.reward_margin, one.reward_margin);
  ExpectSameNumber(got.validation_reward_margin, one.validation_reward_margin);
}

class TunedLayouts : public ::testing::TestWithParam<Tuned> {};

TEST_P(TunedLayouts, OfEightRanksAreThoseOfOne) {
  const JobConfig job = TunedJob(GetParam());
  const RankRun alone = RunJob(job, {.open_lines = OpenIdLines})[0];
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  const Tensors one = ReadTensors(Newest(job.checkpoint->directory));
  // Each kind of job draws layouts of its own.
  for (const LayoutCase& layout : DrawnLayoutsOfEight("llama", 6, uint64_t(GetParam()))) {
    SCOPED_TRACE(layout.name());
    JobConfig divided = job;
    divided.parallelism = layout.job.parallelism;
    divided.checkpoint->directory = FreshDirectory("tuned_layouts_divided");
    for (const RankRun& run : RunJob(divided, {.ranks = 8, .open_lines = OpenIdLines})) {
      ASSERT_TRUE(run.status.ok()) << run.status;
      ASSERT_EQ(run.records.size(), alone.records.size());
      for (size_t step = 0; step < run.records.size(); ++step) {
        ExpectSameStep(run.records[step], alone.records[step]);
      }
    }
    EXPECT_LE(LargestDifference(ReadTensors(Newest(divided.checkpoint->directory)), one),
              kSameAsOne);
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, TunedLayouts,
                         ::testing::Values(Tuned::kLora, Tuned::kChats, Tuned::kDpo),
                         [](const auto& info) { return kTunedNames[int(info.param)]; });

}  // namespace
}  // namespace trainyard::testing
