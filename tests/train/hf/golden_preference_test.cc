// Proves learning from pairs of answers against TRL, in f64. Each case of tests/golden/preference
// is what TRL's loss has trained of a model of tests/golden/hf (make_preference.py). A job on the
// same pairs, on one rank or on four, has the same losses, norms, rewards and parameters after
// twenty steps with clipping (1e-7): of the whole model, and of a low-rank adapter. So has the
// second step of DPO the same gradients. Every family of text has a case of each method.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/strip.h"
#include "models/arch/registry.h"
#include "models/hf/model.h"
#include "models/hf/safetensors.h"
#include "tests/families/family_case.h"
#include "tests/models/hf/files.h"
#include "tests/train/step/id_lines.h"
#include "tests/train/step/run_job.h"
#include "train/data/chat.h"
#include "train/hf/import.h"

namespace trainyard::testing {
namespace {

constexpr char kGoldenPreference[] = "tests/golden/preference";
constexpr char kGoldenAfter[] = "tests/golden/preference/after";
constexpr char kGoldenGradients[] = "tests/golden/preference/gradients";

struct PreferenceCase {
  PreferenceMethod method = PreferenceMethod::kDpo;
  bool adapted = false;
  std::string base;  // A directory of tests/golden/hf.

  ModelConfig Model() const {
    const auto config = ReadHfConfig(SourceFile(absl::StrCat("tests/golden/hf/", base)));
    CHECK(config.ok()) << config.status();
    return *config;
  }
};

// Of METHOD_BASE or METHOD_lora_BASE.
PreferenceCase CaseOfName(absl::string_view name) {
  PreferenceCase c;
  if (absl::ConsumePrefix(&name, "orpo_")) {
    c.method = PreferenceMethod::kOrpo;
  } else {
    CHECK(absl::ConsumePrefix(&name, "dpo_")) << name;
  }
  c.adapted = absl::ConsumePrefix(&name, "lora_");
  c.base = std::string(name);
  return c;
}

// Those with a file in this directory.
std::vector<std::string> CasesIn(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(SourceFile(directory))) {
    const std::filesystem::path& file = entry.path();
    if (file.extension() == ".safetensors") names.push_back(file.stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

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

// What a checkpoint has of each parameter under this end of a name.
Tensors ValuesOf(const Checkpoint& checkpoint, absl::string_view end) {
  Tensors values;
  for (auto& [name, tensor] : ReadTensors(checkpoint)) {
    absl::string_view parameter = name;
    if (absl::ConsumeSuffix(&parameter, end)) values[std::string(parameter)] = std::move(tensor);
  }
  return values;
}

class GoldenPreference : public ::testing::TestWithParam<std::string> {
 protected:
  JobConfig Job(const std::string& name) const {
    const std::string pairs = SourceFile("tests/golden/preference/pairs.jsonl");
    JobConfig job = TinyJob(absl::StrCat(scratch_, "/", name));
    const std::string base = absl::StrCat(scratch_, "/base-of-", name);
    const auto imported =
        ImportHf({SourceFile(absl::StrCat("tests/golden/hf/", case_.base)), base});
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
    job.preference = PreferenceConfig{.method = case_.method, .beta = 0.7};
    if (case_.adapted) job.adapter = AdapterConfig{.lora = LoraConfig{.rank = 3, .alpha = 6}};
    return job;
  }

  // Of a whole model, by the names of its directory, which an import makes those of checkpoints.
  Tensors Golden(const char* directory) const {
    const std::string file = SourceFile(absl::StrCat(directory, "/", GetParam(), ".safetensors"));
    if (case_.adapted) return ReadAll(file);
    const std::string path = EmptyDirectory("golden"), to = path + "/imported";
    std::filesystem::copy_file(
        SourceFile(absl::StrCat("tests/golden/hf/", case_.base, "/config.json")),
        path + "/config.json");
    std::filesystem::copy_file(file, path + "/model.safetensors");
    const auto imported = ImportHf({path, to});
    CHECK(imported.ok()) << imported.status();
    return ValuesOf(*Checkpoint::Open(to), "/parameter");
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
    const Tensors numbers =
        ReadAll(SourceFile(absl::StrCat(kGoldenPreference, "/", GetParam(), ".safetensors")));
    EXPECT_LE(LargestDifference(found, numbers), 1e-7);
    const Tensors trained = ValuesOf(Newest(job.checkpoint->directory), "/parameter");
    EXPECT_LE(LargestDifference(trained, Golden(kGoldenAfter)), 1e-7);
  }

  const PreferenceCase case_ = CaseOfName(GetParam());
  const std::string scratch_ = EmptyDirectory(absl::StrCat("preference-", GetParam()));
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
    return ValuesOf(Newest(job.checkpoint->directory), "/m");
  };
  const Tensors before = moments_after(1);
  Tensors found;
  for (const auto& [name, after] : moments_after(2)) {
    std::vector<double>& gradient = found[name];
    for (size_t i = 0; i < after.size(); ++i) {
      gradient.push_back((after[i] - 0.9 * before.at(name)[i]) / (1 - 0.9));
    }
  }
  EXPECT_LE(LargestDifference(found, Golden(kGoldenGradients)), 1e-7);
}

// A dit makes pictures, not text: it has no answers to prefer.
TEST(GoldenPreferenceCases, HaveEveryFamilyOfTextWithEachMethod) {
  std::set<std::string> wanted;
  for (const std::string& family : FamilyNames()) {
    if (CaseOf(family).is_decoder) wanted.insert(family);
  }
  EXPECT_EQ(wanted.size(), FamilyNames().size() - 1) << "All but dit are models of text.";
  const auto families = [](const std::string& directory, PreferenceMethod method) {
    std::set<std::string> names;
    for (const std::string& name : CasesIn(directory)) {
      const PreferenceCase c = CaseOfName(name);
      if (c.method == method && !c.adapted) names.insert(c.Model().family());
    }
    return names;
  };
  EXPECT_EQ(families(kGoldenPreference, PreferenceMethod::kDpo), wanted);
  EXPECT_EQ(families(kGoldenPreference, PreferenceMethod::kOrpo), wanted);
  EXPECT_EQ(families(kGoldenGradients, PreferenceMethod::kDpo), wanted);
}

INSTANTIATE_TEST_SUITE_P(Trl, GoldenPreferenceGradients,
                         ::testing::ValuesIn(CasesIn(kGoldenGradients)),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Trl, GoldenPreference, ::testing::ValuesIn(CasesIn(kGoldenPreference)),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trainyard::testing
