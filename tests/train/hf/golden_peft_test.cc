// Proves, in f64, that a directory that PEFT wrote goes on here. Each of tests/golden/peft is an
// adapter that make_peft.py wrote with PEFT for a model of tests/golden/hf, and loaded again.
// `import` makes a run of it that has PEFT's logits (1e-8), also merged; a job that begins with it,
// on one rank or divided over four, takes PEFT's next five steps with AdamW (losses, norms and
// adapter, 1e-7). What is exported is the directory as it was, to the bit, and what a job trained
// comes back to the bit through export and import; magnitudes of DoRA to the last digit. Adapters
// whose layers have other ranks and scales (rank_pattern, alpha_pattern) have PEFT's logits, too,
// and so has what is exported of them.

#include <algorithm>
#include <filesystem>

#include "gmock/gmock.h"
#include "tests/models/hf/files.h"
#include "tests/train/hf/golden_adapter.h"
#include "train/config/adapter_patterns.h"
#include "train/hf/export.h"
#include "train/hf/import_adapter.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kSteps = 5;  // As in make_peft.py.

class GoldenPeft : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto made = ImportAdapter({.from = directory_, .to = scratch_ + "/imported"}, base_);
    ASSERT_TRUE(made.ok()) << made.status();
    made_ = *made;
  }

  static Checkpoint NewestOf(const std::string& path) {
    const auto chosen = FindCheckpoint(path);
    CHECK(chosen.ok()) << chosen.status();
    return *chosen->checkpoint;
  }

  JobConfig Job(const std::string& name) const {
    JobConfig job = JobOnTokens(made_.imported.model, tokens_, absl::StrCat(scratch_, "/", name));
    job.steps = kSteps;
    job.init_from = scratch_ + "/imported";
    job.adapter = AdapterConfig{
        .lora = AdapterThatTrains(made_.imported.model, made_.numbers, made_.trained)};
    return job;
  }

  // The directory of the exported adapter.
  std::string Export(const Checkpoint& checkpoint, const std::string& name) const {
    const std::string to = absl::StrCat(scratch_, "/", name);
    const auto exported = ExportHf(checkpoint, {.to = to, .base = base_});
    CHECK(exported.ok()) << exported.status();
    return to;
  }

  // Sums with the base's norms have another last digit than they had.
  double Tolerance() const { return made_.numbers.dora ? 1e-14 : 0; }

  void ExpectGolden(const std::vector<RankRun>& runs, const JobConfig& job) const {
    for (const RankRun& run : runs) ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_LE(LargestDifference({{"losses", LossesOf(runs[0])}, {"norms", NormsOf(runs[0])}},
                                {{"losses", ReadTensor<double>(golden_, "losses")},
                                 {"norms", ReadTensor<double>(golden_, "grad_norms")}}),
              1e-7);
    const std::string out = Export(Newest(job.checkpoint->directory), job.name + "-after");
    EXPECT_LE(LargestDifference(ReadAdapter(out + "/adapter_model.safetensors"),
                                ReadAdapter(directory_ + "/after.safetensors")),
              1e-7);
  }

  const std::string scratch_ = EmptyDirectory(absl::StrCat("peft-", GetParam()));
  const std::string directory_ = SourceFile(absl::StrCat("tests/golden/peft/", GetParam()));
  const nlohmann::json config_ = ReadJson(directory_ + "/adapter_config.json");
  const std::string base_ =
      SourceFile("tests/golden/" + config_.at("base_model_name_or_path").get<std::string>());
  const SafetensorsFile golden_ = OpenSafetensors(directory_ + "/golden.safetensors");
  const std::vector<int64_t> tokens_ = ReadTensor<int64_t>(golden_, "tokens");
  ImportedAdapter made_;
};

TEST_P(GoldenPeft, LogitsAreThoseOfPeft) {
  const Checkpoint imported = NewestOf(scratch_ + "/imported");
  const Tensors wanted = {{"logits", ReadTensor<double>(golden_, "logits")}};
  EXPECT_LE(LargestDifference({{"logits", LogitsOf(imported, tokens_)}}, wanted), 1e-8);
  const std::string merged = scratch_ + "/merged";
  const auto whole = ExportHf(imported, {.to = merged, .dtype = HfDType::kF64, .merge = true});
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_TRUE(ImportHf({merged, scratch_ + "/again"}).ok());
  EXPECT_LE(
      LargestDifference({{"logits", LogitsOf(NewestOf(scratch_ + "/again"), tokens_)}}, wanted),
      1e-8);
}

TEST_P(GoldenPeft, TheNextStepsAreThoseOfPeft) {
  JobConfig job = Job("one");
  job.name = "one";
  ExpectGolden(RunJob(job), job);
}

TEST_P(GoldenPeft, TheNextStepsOnFourRanksAreThose) {
  JobConfig job = Job("four");
  job.name = "four";
  job.parallelism.pipeline = 2;
  job.parallelism.zero = Zero::kFull;
  ExpectGolden(RunJob(job, {.ranks = 4}), job);
}

TEST_P(GoldenPeft, AnExportIsTheDirectoryAsItWas) {
  const std::string out = Export(NewestOf(scratch_ + "/imported"), "out");
  EXPECT_LE(LargestDifference(ReadAdapter(out + "/adapter_model.safetensors"),
                              ReadAdapter(directory_ + "/adapter_model.safetensors")),
            Tolerance());
  const nlohmann::json config = ReadJson(out + "/adapter_config.json");
  for (const char* key : {"peft_type", "task_type", "r", "lora_alpha", "use_rslora", "use_dora",
                          "bias", "fan_in_fan_out"}) {
    EXPECT_EQ(config.at(key), config_.at(key)) << key;
  }
}

// Bug it must catch: one of the two directions has another place for a tensor.
TEST_P(GoldenPeft, WhatAJobTrainedComesBack) {
  JobConfig job = Job("trained");
  job.steps = 1;
  const RankRun run = RunJob(job)[0];
  ASSERT_TRUE(run.status.ok()) << run.status;
  const Checkpoint trained = Newest(job.checkpoint->directory);
  const std::string out = Export(trained, "out");
  const std::string again = scratch_ + "/again";
  const auto imported = ImportAdapter({.from = out, .to = again}, "");  // The base is in the file.
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->trained, made_.trained);
  const Checkpoint back = NewestOf(again);
  Tensors got, wanted;
  for (const auto& [checkpoint, tensors] : {std::pair(&back, &got), std::pair(&trained, &wanted)}) {
    for (const std::string& name : made_.trained) {
      const StoredTensor& stored = *checkpoint->Find(name, TensorKind::kParameter);
      std::vector<double>& values = (*tensors)[name];
      values.resize(size_t(stored.shape.elements()));
      const TargetBox box{.name = name,
                          .dtype = DType::kF64,
                          .global_shape = stored.shape,
                          .box = WholeBox(stored.shape),
                          .data = values.data()};
      ASSERT_TRUE(checkpoint->Load({&box, 1}).ok());
    }
  }
  EXPECT_LE(LargestDifference(got, wanted), Tolerance());
}

class GoldenPatterns : public GoldenPeft {
 protected:
  static std::vector<double> First(const std::vector<double>& values) { return {values[0]}; }
};

TEST_P(GoldenPatterns, LogitsAreThoseOfPeft) {
  const Tensors wanted = {{"logits", ReadTensor<double>(golden_, "logits")}};
  const Checkpoint imported = NewestOf(scratch_ + "/imported");
  EXPECT_LE(LargestDifference({{"logits", LogitsOf(imported, tokens_)}}, wanted), 1e-8);
  // The export says one rank and one alpha.
  const std::string out = Export(imported, "out");
  const nlohmann::json config = ReadJson(out + "/adapter_config.json");
  EXPECT_EQ(config.at("r"), 4);
  EXPECT_FALSE(config.contains("rank_pattern"));
  const auto again = ImportAdapter({.from = out, .to = scratch_ + "/again"}, base_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(LogitsOf(NewestOf(scratch_ + "/again"), tokens_), LogitsOf(imported, tokens_));
  EXPECT_EQ(again->trained_parameters, made_.trained_parameters);
}

// Numbers that only fill the rank stay zero. Where all layers have one scale, the steps are PEFT's.
TEST_P(GoldenPatterns, AJobGoesOn) {
  JobConfig job = Job("job");
  const RankRun run = RunJob(job)[0];
  ASSERT_TRUE(run.status.ok()) << run.status;
  const std::vector<double> wanted = ReadTensor<double>(golden_, "losses");
  const bool one_scale = GetParam() == std::string("mixtral_patterns");
  EXPECT_LE(LargestDifference({{"losses", one_scale ? LossesOf(run) : First(LossesOf(run))}},
                              {{"losses", one_scale ? wanted : First(wanted)}}),
            1e-7);
  const Tensors after = ReadAdapter(Export(Newest(job.checkpoint->directory), "after") +
                                    "/adapter_model.safetensors");
  const char* const a = one_scale ? "model.layers.0.self_attn.q_proj.lora_A.weight"
                                  : "model.layers.1.self_attn.q_proj.lora_A.weight";
  const std::vector<double>& values = after.at(a);
  ASSERT_EQ(values.size(), 4u * 12);
  const size_t own = one_scale ? 2 * 12 : 12;
  EXPECT_TRUE(std::all_of(values.begin(), values.begin() + own, [](double x) { return x != 0; }));
  EXPECT_TRUE(std::all_of(values.begin() + own, values.end(), [](double x) { return x == 0; }));
}

INSTANTIATE_TEST_SUITE_P(Peft, GoldenPatterns,
                         ::testing::Values("llama_patterns", "mixtral_patterns"),
                         [](const auto& info) { return std::string(info.param); });

INSTANTIATE_TEST_SUITE_P(Peft, GoldenPeft,
                         ::testing::Values("llama", "llama_dora", "llama_layer", "qwen2",
                                           "gpt3_dora", "mixtral_experts", "qwen3_moe_experts",
                                           "gpt_oss_experts", "deepseek_v3_experts"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace trainyard::testing
