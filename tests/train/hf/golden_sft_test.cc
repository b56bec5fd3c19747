// Proves learning answers of packed conversations against `transformers`, in f64, for every family
// that it has. Each case of tests/golden/sft is what that code has trained of a model of
// tests/golden/hf (make_sft.py), one conversation at a time. A job that packs the conversations, on
// one rank or on four, has the same losses, norms, first gradients and parameters after twenty
// steps with clipping (1e-7).
// Bugs it must catch: a token that attends to another conversation, or whose position, state of
// Mamba-2 or convolution goes on from it; a question or padding that counts; a loss that is a mean
// over each sample.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "models/hf/model.h"
#include "tests/models/hf/files.h"
#include "tests/train/hf/golden_adapter.h"
#include "tests/train/step/id_lines.h"
#include "train/data/chat.h"
#include "train/hf/import.h"

namespace trainyard::testing {
namespace {

// Eight conversations, four samples; as in make_sft.py.
constexpr int64_t kSftSamples = 4, kSftSequence = 16, kSftSteps = 20;

std::vector<std::string> SftCases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(SourceFile("tests/golden/sft"))) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class GoldenSft : public ::testing::TestWithParam<std::string> {
 protected:
  // The tensors of an imported directory.
  Tensors Import(const std::string& directory, const std::string& name) const {
    const std::string to = absl::StrCat(scratch_, "/", name);
    const auto imported = ImportHf({directory, to});
    CHECK(imported.ok()) << imported.status();
    return ReadTensors(*Checkpoint::Open(to));
  }

  JobConfig Job(const std::string& name) const {
    const auto imported = ImportHf({SourceFile("tests/golden/hf/" + GetParam()), base_});
    CHECK(imported.ok()) << imported.status();
    const std::string chats = absl::StrCat(scratch_, "/chats.jsonl");
    std::filesystem::copy_file(SourceFile("tests/golden/sft/chats.jsonl"), chats,
                               std::filesystem::copy_options::overwrite_existing);
    JobConfig job = TinyJob(absl::StrCat(scratch_, "/", name));
    job.model.architecture = GivenModel{.family = imported->model.family()};
    for (const Field& field : FieldsOf(imported->model)) {
      job.model.architecture->fields[field.rule.name] = field.value;
    }
    job.batch = {.global = kSftSamples, .micro = 1, .sequence = kSftSequence};
    job.data = ChatData{.path = chats, .tokenizer = chats};
    job.steps = kSftSteps;
    job.init_from = base_;
    return job;
  }

  // Of the first step, whose clipped gradient is a known share of AdamW's first moment after it.
  Tensors FirstGradients(JobConfig job, const RunOptions& options) const {
    job.steps = 1;
    job.checkpoint->directory += "-first";
    for (const RankRun& run : RunJob(job, options)) CHECK(run.status.ok()) << run.status;
    Tensors gradients;
    for (auto& [name, values] : ReadTensors(Newest(job.checkpoint->directory))) {
      if (!name.ends_with("/m")) continue;
      for (double& value : values) value /= 1 - 0.9;
      gradients[name.substr(0, name.size() - 1) + "parameter"] = std::move(values);
    }
    return gradients;
  }

  void ExpectGolden(const JobConfig& job, const RunOptions& options) const {
    const std::vector<RankRun> runs = RunJob(job, options);
    for (const RankRun& run : runs) ASSERT_TRUE(run.status.ok()) << run.status;
    const SafetensorsFile golden = OpenSafetensors(directory_ + "/golden.safetensors");
    EXPECT_LE(LargestDifference({{"losses", LossesOf(runs[0])}, {"norms", NormsOf(runs[0])}},
                                {{"losses", ReadTensor<double>(golden, "losses")},
                                 {"norms", ReadTensor<double>(golden, "grad_norms")}}),
              1e-7);
    Tensors trained = ReadTensors(Newest(job.checkpoint->directory));
    std::erase_if(trained,
                  [](const auto& tensor) { return !tensor.first.ends_with("/parameter"); });
    EXPECT_LE(LargestDifference(trained, Import(directory_ + "/after", "after")), 1e-7);
    const Tensors gradients = FirstGradients(job, options);
    EXPECT_LE(LargestDifference(gradients, Import(directory_ + "/gradients", "gradients")), 1e-7);
  }

  const std::string scratch_ = EmptyDirectory(absl::StrCat("sft-", GetParam()));
  const std::string base_ = scratch_ + "/base";
  const std::string directory_ = SourceFile("tests/golden/sft/" + GetParam());
};

TEST_P(GoldenSft, TwentyPackedStepsAreThoseOfConversationsAlone) {
  ExpectGolden(Job("run"), {.open_lines = OpenIdLines});
}

TEST_P(GoldenSft, TwentyPackedStepsOnFourRanksAreThose) {
  JobConfig job = Job("four");
  job.parallelism.pipeline = 2;
  job.parallelism.context = 2;
  ExpectGolden(job, {.ranks = 4, .open_lines = OpenIdLines});
}

INSTANTIATE_TEST_SUITE_P(Hf, GoldenSft, ::testing::ValuesIn(SftCases()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trainyard::testing
