// Proves learning from pairs of answers against TRL, in f64. Each case of tests/golden/preference
// is what TRL's loss has trained of a model of tests/golden/hf (make_preference.py). A job on the
// same pairs, on one rank or on four, has the same losses, norms, rewards and parameters after
// twenty steps with clipping (1e-7): of the whole model, and of a low-rank adapter. Of some, the
// second step's gradients are the same, too.
#include <gmock/gmock.h>

#include <filesystem>

#include "absl/strings/strip.h"
#include "models/hf/model.h"
#include "models/hf/safetensors.h"
#include "tests/models/hf/files.h"
#include "tests/train/step/id_lines.h"
#include "tests/train/step/run_job.h"
#include "train/data/chat.h"
#include "train/hf/import.h"

namespace trainyard::testing {
namespace {

struct PreferenceCase {
  const char* name;
  const char* base;
  PreferenceMethod method;
  bool adapted;
  friend void PrintTo(const PreferenceCase& c, std::ostream* out) { *out << c.name; }
};

constexpr auto kDpo = PreferenceMethod::kDpo;
const PreferenceCase kPreferenceCases[] = {{"dpo", "llama", kDpo, false},
                                           {"dpo_lora", "llama", kDpo, true},
                                           {"orpo", "llama", PreferenceMethod::kOrpo, false},
                                           {"dpo_gpt3", "gpt3", kDpo, false},
                                           {"dpo_qwen3", "qwen3", kDpo, false},
                                           {"dpo_gemma3", "gemma3_tied", kDpo, false},
                                           {"dpo_nemotron_h", "nemotron_h", kDpo, false},
                                           {"dpo_lora_gpt3", "gpt3", kDpo, true},
                                           {"dpo_lora_qwen3", "qwen3", kDpo, true},
                                           {"dpo_lora_gemma3", "gemma3_tied", kDpo, true}};

Tensors ReadAll(const std::string& path) {
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  CHECK(file.ok()) << file.status();
  Tensors tensors;
  for (const auto& [name, tensor] : file->tensors()) {
    std::vector<double>& values = tensors[name];
    values.resize(tensor.bytes / sizeof(double));
    CHECK(file->Read(tensor, 0, values.data(), tensor.bytes).ok());
  }
  return tensors;
}

class GoldenPreference : public ::testing::TestWithParam<PreferenceCase> {
 protected:
  JobConfig Job(const std::string& name) const {
    const std::string pairs = SourceFile("tests/golden/preference/pairs.jsonl");
    JobConfig job = TinyJob(absl::StrCat(scratch_, "/", name));
    const std::string base = absl::StrCat(scratch_, "/base-of-", name);
    const auto imported =
        ImportHf({SourceFile(absl::StrCat("tests/golden/hf/", GetParam().base)), base});
    CHECK(imported.ok()) << imported.status();
    job.model.architecture = GivenModel{.family = imported->model.family()};
    for (const Field& field : FieldsOf(imported->model)) {
      job.model.architecture->fields[field.rule.name] = field.value;
    }
    // As in make_preference.py.
    job.batch = {.global = 4, .micro = 1, .sequence = 16};
    job.data = ChatData{.path = scratch_ + "/pairs.jsonl", .tokenizer = pairs};
    std::filesystem::copy_file(pairs, scratch_ + "/pairs.jsonl",
                               std::filesystem::copy_options::overwrite_existing);
    job.steps = 20;
    job.seed = 11;
    job.init_from = base;
    job.preference = PreferenceConfig{.method = GetParam().method, .beta = 0.7};
    if (GetParam().adapted) job.adapter = AdapterConfig{.lora = LoraConfig{.rank = 3, .alpha = 6}};
    return job;
  }

  void ExpectGolden(const std::vector<RankRun>& runs, const JobConfig& job) const {
    for (const RankRun& run : runs) ASSERT_TRUE(run.status.ok()) << run.status;
    Tensors found;
    for (const StepRecord& record : runs[0].records) {
      found["losses"].push_back(record.loss);
      found["grad_norms"].push_back(record.grad_norm);
      found["chosen_rewards"].push_back(*record.chosen_reward);
      found["rejected_rewards"].push_back(*record.rejected_reward);
      found["margins"].push_back(*record.reward_margin);
      found["accuracies"].push_back(*record.reward_accuracy);
    }
    for (auto& [name, values] : ReadTensors(Newest(job.checkpoint->directory))) {
      absl::string_view parameter = name;
      if (!absl::ConsumeSuffix(&parameter, "/parameter")) continue;
      found[absl::StrCat("parameter/", parameter)] = values;
    }
    EXPECT_LE(LargestDifference(found, WithoutGradients()), 1e-7);
  }

  Tensors WithoutGradients() const {
    Tensors wanted = golden_;
    std::erase_if(wanted, [](const auto& tensor) { return tensor.first.starts_with("gradient/"); });
    return wanted;
  }

  const std::string scratch_ = EmptyDirectory(absl::StrCat("preference-", GetParam().name));
  const Tensors golden_ = ReadAll(
      SourceFile(absl::StrCat("tests/golden/preference/", GetParam().name, ".safetensors")));
};

TEST_P(GoldenPreference, TwentyStepsAreThoseOfTrl) {
  const JobConfig job = Job("run");
  ExpectGolden(RunJob(job, {.open_lines = OpenIdLines}), job);
}

TEST_P(GoldenPreference, TwentyStepsOnFourRanksAreThose) {
  JobConfig job = Job("four");
  job.parallelism.pipeline = 2;
  job.parallelism.context = 2;
  ExpectGolden(RunJob(job, {.ranks = 4, .open_lines = OpenIdLines}), job);
}

class GoldenPreferenceGradients : public GoldenPreference {};

// The first step's moments are 0.1 of its clipped gradient, and the second's are 0.9 of these and
// 0.1 of the next gradient. In the first step, the gradients of lora_A are zero.
TEST_P(GoldenPreferenceGradients, OfTheSecondStepAreThoseOfTrl) {
  const auto moments_after = [&](int64_t steps) {
    JobConfig job = Job(absl::StrCat("moments-", steps));
    job.steps = steps;
    CHECK(RunJob(job, {.open_lines = OpenIdLines})[0].status.ok());
    Tensors moments = ReadTensors(Newest(job.checkpoint->directory));
    std::erase_if(moments, [](const auto& tensor) { return !tensor.first.ends_with("/m"); });
    return moments;
  };
  const Tensors before = moments_after(1);
  Tensors found;
  for (const auto& [name, after] : moments_after(2)) {
    std::vector<double>& gradient = found[absl::StrCat("gradient/", absl::StripSuffix(name, "/m"))];
    for (size_t i = 0; i < after.size(); ++i) {
      gradient.push_back((after[i] - 0.9 * before.at(name)[i]) / (1 - 0.9));
    }
  }
  Tensors wanted = golden_;
  std::erase_if(wanted, [](const auto& tensor) { return !tensor.first.starts_with("gradient/"); });
  ASSERT_FALSE(wanted.empty());
  EXPECT_LE(LargestDifference(found, wanted), 1e-7);
}

INSTANTIATE_TEST_SUITE_P(Trl, GoldenPreferenceGradients,
                         ::testing::Values(kPreferenceCases[3], kPreferenceCases[8]),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Trl, GoldenPreference, ::testing::ValuesIn(kPreferenceCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace trainyard::testing
