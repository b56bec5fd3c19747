// Proves low-rank adapters against PEFT, in f64, also with magnitudes (DoRA), dropout, of experts,
// and beside a base in NF4 (QLoRA), whose numbers are those of bitsandbytes. Each directory of
// tests/golden/lora is an adapter that make_lora.py trained on a model of tests/golden/hf or nf4. A
// job with the same adapter, on one rank or divided over four, has the same losses, norms and
// exported adapters after twenty steps with clipping (1e-7), whether its base is a checkpoint or a
// directory. Its checkpoints have the adapter alone. What it exports is PEFT's directory, whose
// config.json names the same layers; the model with both merged has PEFT's logits (1e-8), and so
// has what `import` makes of PEFT's directory. Another base or another adapter is refused.
#include <cmath>
#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "tests/models/hf/files.h"
#include "tests/train/hf/golden_adapter.h"
#include "train/hf/export.h"
#include "train/hf/import.h"
#include "train/hf/import_adapter.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// As in make_lora.py.
constexpr int64_t kSteps = 20;

constexpr char kNf4Base[] = "../nf4/base", kNf4Moe[] = "../nf4/base_moe";

struct LoraCase {
  const char* name;
  const char* base;
  LoraConfig lora;
  friend void PrintTo(const LoraCase& c, std::ostream* out) { *out << c.name; }
};

const std::vector<std::string> kOfNemotronH = {"*.in_proj", "*.q_proj", "*.k_proj", "*.v_proj",
                                               "*.o_proj"};

const LoraCase kCases[] = {
    {"llama", "llama", {.rank = 3, .alpha = 6}},
    {"llama_of_queries",
     "llama_tied",
     {.rank = 4, .alpha = 8, .targets = {"*.q_proj", "*.v_proj", "*.down_proj"}, .rslora = true}},
    {"gpt3", "gpt3", {.rank = 2, .modules_to_save = {"*.ln_f", "lm_head"}}},
    {"deepseek_v3",
     "deepseek_v3",
     {.rank = 2, .alpha = 3, .targets = {"*.self_attn.*_proj", "*.kv_a_proj_with_mqa"}}},
    {"llama_dropout", "llama", {.rank = 3, .dropout = 0.2}},
    {"llama_dora", "llama", {.rank = 3, .alpha = 6, .dora = true}},
    {"llama_dora_dropout", "llama", {.rank = 3, .dora = true, .dropout = 0.2}},
    {"gpt3_dora", "gpt3", {.rank = 2, .rslora = true, .dora = true}},
    {"deepseek_v3_dora",
     "deepseek_v3",
     {.rank = 2,
      .alpha = 3,
      .targets = {"*.self_attn.*_proj", "*.kv_a_proj_with_mqa"},
      .dora = true}},
    {"mixtral_experts",
     "mixtral",
     {.rank = 2, .alpha = 3, .targets = {"*.q_proj", "*.v_proj", "*.experts.*"}}},
    {"qwen3_moe_experts",
     "qwen3_moe",
     {.rank = 3, .targets = {"*.experts.gate_up_proj"}, .rslora = true}},
    {"gpt_oss_experts", "gpt_oss", {.rank = 2, .alpha = 4, .targets = {"*.experts.*"}}},
    {"deepseek_v3_experts",
     "deepseek_v3",
     {.rank = 2, .alpha = 3, .targets = {"*.q_a_proj", "*.o_proj", "*.experts.down_proj"}}},
    {"qwen2", "qwen2", {.rank = 2, .alpha = 4}},
    {"qwen3", "qwen3", {.rank = 3, .rslora = true}},
    {"nemotron", "nemotron", {.rank = 2, .alpha = 3}},
    {"gemma3", "gemma3_tied", {.rank = 2, .alpha = 4}},
    {"nemotron_h", "nemotron_h", {.rank = 2, .alpha = 4, .targets = kOfNemotronH}},
    {"nemotron_h_experts",
     "nemotron_h",
     {.rank = 2, .alpha = 3, .targets = {"*.q_proj", "*.experts.*"}}},
    {"qwen2_dora", "qwen2", {.rank = 3, .dora = true}},
    {"qwen3_dora", "qwen3", {.rank = 2, .alpha = 4, .dora = true}},
    {"nemotron_dora", "nemotron", {.rank = 2, .dora = true}},
    {"gemma3_dora", "gemma3_tied", {.rank = 2, .rslora = true, .dora = true}},
    {"nemotron_h_dora",
     "nemotron_h",
     {.rank = 2, .alpha = 3, .targets = kOfNemotronH, .dora = true}},
    {"mixtral_dora", "mixtral", {.rank = 2, .alpha = 3, .targets = {"*_proj"}, .dora = true}},
    {"qwen3_moe_dora",
     "qwen3_moe",
     {.rank = 2, .targets = {"*.q_proj", "*.k_proj", "*.v_proj"}, .dora = true}},
    {"gpt_oss_dora", "gpt_oss", {.rank = 2, .alpha = 4, .targets = {"*self_attn*"}, .dora = true}},
    {"llama_nf4", kNf4Base, {.rank = 3, .alpha = 6, .base = LoraBase::kNf4}},
    {"llama_nf4_dora", kNf4Base, {.rank = 2, .dora = true, .base = LoraBase::kNf4}},
    {"qwen3_moe_nf4",
     kNf4Moe,
     {.rank = 2, .alpha = 3, .targets = {"all-linear", "*.experts.*"}, .base = LoraBase::kNf4}}};

bool IsOfExperts(absl::string_view layer) { return absl::StrContains(layer, ".experts"); }

class GoldenLora : public ::testing::TestWithParam<LoraCase> {
 protected:
  void SetUp() override {
    const auto imported = ImportHf({Base(), scratch_ + "/base"});
    ASSERT_TRUE(imported.ok()) << imported.status();
    model_ = imported->model;
  }
  static std::string Base() {
    return SourceFile(absl::StrCat("tests/golden/hf/", GetParam().base));
  }

  JobConfig Job(const std::string& name) const {
    JobConfig job = JobOnTokens(model_, tokens_, absl::StrCat(scratch_, "/", name));
    job.steps = kSteps;
    job.init_from = scratch_ + "/base";
    job.adapter = AdapterConfig{.lora = GetParam().lora};
    return job;
  }

  void ExpectGolden(const std::vector<RankRun>& runs, const JobConfig& job) const {
    for (const RankRun& run : runs) ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_LE(LargestDifference({{"losses", LossesOf(runs[0])}, {"norms", NormsOf(runs[0])}},
                                {{"losses", ReadTensor<double>(golden_, "losses")},
                                 {"norms", ReadTensor<double>(golden_, "grad_norms")}}),
              1e-7);
    const std::string to = job.checkpoint->directory + "-exported";
    const auto exported = ExportHf(Newest(job.checkpoint->directory), {.to = to});
    ASSERT_TRUE(exported.ok()) << exported.status();
    EXPECT_EQ(exported->experts_in_nf4, GetParam().base == std::string(kNf4Moe));
    EXPECT_LE(LargestDifference(ReadAdapter(to + "/adapter_model.safetensors"),
                                ReadAdapter(directory_ + "/adapter_model.safetensors")),
              1e-7);
  }

  // Experts are chosen by the names that they have in memory; PEFT compares the ends of names.
  void ExpectTheSameParameters(const Json& config, const Json& of_peft) const {
    const auto ends = of_peft.value("target_parameters", Json());
    ASSERT_EQ(config.contains("target_parameters"), !ends.empty());
    if (ends.empty()) return;
    std::set<std::string> got, wanted;
    for (const Json& name : config["target_parameters"]) {
      EXPECT_TRUE(name.get<std::string>().starts_with("model.layers.")) << name;
      got.insert(name.get<std::string>().substr(name.get<std::string>().find("experts.")));
    }
    for (const Json& name : ends) wanted.insert(name.get<std::string>());
    EXPECT_EQ(got, wanted);
  }

  Tensors MomentsAfter(int64_t steps) const;

  const std::string scratch_ = EmptyDirectory(absl::StrCat("lora-", GetParam().name));
  const std::string directory_ = SourceFile(absl::StrCat("tests/golden/lora/", GetParam().name));
  const SafetensorsFile golden_ = OpenSafetensors(directory_ + "/golden.safetensors");
  const std::vector<int64_t> tokens_ = ReadTensor<int64_t>(golden_, "tokens");
  ModelConfig model_;
};

TEST_P(GoldenLora, TwentyStepsAreThoseOfPeft) {
  JobConfig job = Job("run");
  ExpectGolden(RunJob(job), job);
  const Checkpoint trained = Newest(job.checkpoint->directory);
  ASSERT_NE(trained.base(), nullptr);
  for (const StoredTensor& tensor : trained.base()->tensors) {
    EXPECT_EQ(trained.manifest().Find(tensor.name, TensorKind::kParameter), nullptr) << tensor.name;
  }

  const std::string to = job.checkpoint->directory + "-exported";
  const Tensors adapter = ReadAdapter(to + "/adapter_model.safetensors");
  Json config = ReadJson(to + "/adapter_config.json");
  const Json of_peft = ReadJson(directory_ + "/adapter_config.json");
  for (const char* key : {"peft_type", "task_type", "r", "lora_alpha", "use_rslora", "use_dora",
                          "bias", "fan_in_fan_out", "inference_mode"}) {
    EXPECT_EQ(config.at(key), of_peft.at(key)) << key;
  }
  EXPECT_EQ(config.at("lora_dropout"), 0) << "what is exported answers";
  std::set<std::string> layers;
  for (const auto& [name, values] : adapter) {
    absl::string_view layer = name;
    if (absl::ConsumeSuffix(&layer, ".lora_A.weight") && !IsOfExperts(layer)) layers.emplace(layer);
  }
  EXPECT_EQ(config.at("target_modules").get<std::set<std::string>>(), layers);
  ExpectTheSameParameters(config, of_peft);

  const std::string merged = scratch_ + "/merged";
  // The bases in NF4 come from a directory in bf16.
  const auto whole = ExportHf(trained, {.to = merged, .dtype = HfDType::kF64, .merge = true});
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_TRUE(ImportHf({merged, scratch_ + "/again"}).ok());
  const Tensors wanted = {{"logits", ReadTensor<double>(golden_, "logits")}};
  EXPECT_LE(LargestDifference({{"logits", LogitsOf(trained, tokens_)}}, wanted), 1e-8);
  EXPECT_LE(LargestDifference(
                {{"logits", LogitsOf(*Checkpoint::Open(scratch_ + "/again"), tokens_)}}, wanted),
            1e-8);
}

// AdamW's first moments after `steps` steps.
Tensors GoldenLora::MomentsAfter(int64_t steps) const {
  JobConfig job = Job(absl::StrCat("moments-", steps));
  job.steps = steps;
  CHECK(RunJob(job)[0].status.ok());
  Tensors moments = ReadTensors(Newest(job.checkpoint->directory));
  std::erase_if(moments, [](const auto& tensor) { return !tensor.first.ends_with("/m"); });
  return moments;
}

// The first step's moments are 0.1 of its clipped gradient, and the second's are 0.9 of these and
// 0.1 of the next gradient. In the first step, the gradients of lora_A are zero.
class GoldenLoraGradients : public GoldenLora {};

TEST_P(GoldenLoraGradients, OfTheSecondStepAreThoseOfPeft) {
  Tensors wanted;
  for (const auto& [name, tensor] : golden_.tensors()) {
    absl::string_view parameter = name;
    if (!absl::ConsumePrefix(&parameter, "gradient/")) continue;
    wanted[absl::StrCat(parameter, "/m")] = ReadTensor<double>(golden_, name);
  }
  ASSERT_FALSE(wanted.empty());
  const Tensors before = MomentsAfter(1);
  Tensors found = MomentsAfter(2);
  for (auto& [name, values] : found) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = (values[i] - 0.9 * before.at(name)[i]) / (1 - 0.9);
    }
  }
  EXPECT_LE(LargestDifference(found, wanted), 1e-7);
}

TEST_P(GoldenLora, TwentyStepsOnFourRanksFromTheDirectoryAreThose) {
  JobConfig job = Job("four");
  job.init_from = "";
  job.model.import_path = Base();
  job.parallelism.pipeline = 2;
  job.parallelism.zero = Zero::kFull;
  ExpectGolden(RunJob(job, {.ranks = 4}), job);
}

TEST_P(GoldenLora, AStoppedRunGoesOnToTheBit) {
  JobConfig job = Job("whole");
  ASSERT_TRUE(RunJob(job)[0].status.ok());
  const std::string whole = NewestDigest(job.checkpoint->directory);
  job = Job("stopped");
  RunOptions options;
  options.stop = [](int, int64_t finished) { return finished >= 7; };
  ASSERT_TRUE(RunJob(job, options)[0].status.ok());
  std::filesystem::remove_all(scratch_ + "/base");  // The run has a copy.
  const RankRun rest = RunJob(job, {.epoch = 2, .resume = true})[0];
  ASSERT_TRUE(rest.status.ok()) << rest.status;
  EXPECT_EQ(rest.records.front().step, 8);
  EXPECT_EQ(NewestDigest(job.checkpoint->directory), whole);
}

TEST_P(GoldenLora, AnAdapterIsTakenAsItIsOrRefused) {
  JobConfig job = Job("first");
  job.steps = 2;
  ASSERT_TRUE(RunJob(job)[0].status.ok());
  const std::string trained = job.checkpoint->directory;

  JobConfig next = Job("next");
  next.init_from = trained;
  next.steps = 1;
  const RankRun run = RunJob(next)[0];
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_LT(run.records[0].loss, ReadTensor<double>(golden_, "losses")[0]);

  const auto refusal = [&](const std::optional<AdapterConfig>& adapter) {
    JobConfig other = Job("other");
    other.init_from = trained;
    other.adapter = adapter;
    return std::string(RunJob(other)[0].status.message());
  };
  EXPECT_THAT(refusal(std::nullopt),
              HasSubstr(absl::StrCat("with that of the job (none), found an adapter: rank ",
                                     GetParam().lora.rank)));
  AdapterConfig adapter{.lora = GetParam().lora};
  adapter.lora->alpha *= 2;
  EXPECT_THAT(refusal(adapter), HasSubstr("found an adapter: rank "));
  adapter = {.lora = GetParam().lora};
  adapter.lora->dora = !adapter.lora->dora;
  const char* const base = GetParam().lora.base == LoraBase::kNf4 ? ", base in NF4 for f64" : "";
  if (!std::any_of(adapter.lora->targets.begin(), adapter.lora->targets.end(), IsOfExperts)) {
    EXPECT_THAT(refusal(adapter),
                HasSubstr(GetParam().lora.dora ? absl::StrCat(", dora", base, "; `")
                                               : absl::StrCat("dora", base, "), found")));
  }
  if (GetParam().lora.base == LoraBase::kNf4) {
    adapter = {.lora = GetParam().lora};
    adapter.lora->base = LoraBase::kAsComputed;
    EXPECT_THAT(refusal(adapter), HasSubstr(", base in NF4 for f64; `"));
  }
  adapter = {.lora = GetParam().lora};
  adapter.lora->targets = {"*.q_proj", "*.attn.c_attn", "*.q_a_proj"};
  const bool of_experts_alone =
      std::all_of(GetParam().lora.targets.begin(), GetParam().lora.targets.end(), IsOfExperts) &&
      !GetParam().lora.targets.empty();
  EXPECT_THAT(refusal(adapter),
              HasSubstr(of_experts_alone ? "q_proj.lora_A.weight (parameter): wanted"
                                         : "which is none of adapter.lora.targets"));
}

// The loss of PEFT's logits.
double LossOf(const std::vector<double>& logits, const std::vector<int64_t>& tokens) {
  const size_t rows = tokens.size() - 1, vocab = logits.size() / rows;
  double loss = 0;
  for (size_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (size_t i = 0; i < vocab; ++i) sum += std::exp(logits[row * vocab + i]);
    loss += std::log(sum) - logits[row * vocab + size_t(tokens[row + 1])];
  }
  return loss / double(rows);
}

// An adapter that PEFT trained beside a base in 4 bits goes on beside the same base: `import` has
// the whole base, which a job quantises as it does a directory.
TEST_P(GoldenLora, TheDirectoryOfPeftIsImported) {
  const auto imported = ImportAdapter({.from = directory_, .to = scratch_ + "/imported"}, Base());
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto checkpoint = FindCheckpoint(scratch_ + "/imported");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const std::vector<double> wanted = ReadTensor<double>(golden_, "logits");
  if (GetParam().lora.base != LoraBase::kNf4) {
    EXPECT_LE(LargestDifference({{"logits", LogitsOf(*checkpoint->checkpoint, tokens_)}},
                                {{"logits", wanted}}),
              1e-8);
    return;
  }
  JobConfig job = Job("from-imported");
  job.steps = 1;
  job.init_from = scratch_ + "/imported";
  const RankRun run = RunJob(job)[0];
  if (GetParam().lora.dora) {  // The norms that were subtracted are those of the whole base.
    EXPECT_THAT(std::string(run.status.message()), HasSubstr("found an adapter: rank 2"));
    return;
  }
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_NEAR(run.records[0].loss, LossOf(wanted, tokens_), 1e-8);
}

// What PEFT would load as something else: adapters of dense layers beside experts, and a trained
// embedding whose head is tied to it; and adapters of Mamba's output, which PEFT refuses. The whole
// model is exported nevertheless.
TEST_P(GoldenLora, WhatPeftWouldMisreadIsNotExportedForIt) {
  const std::string base = GetParam().base;
  if (base != "deepseek_v3" && base != "llama_tied" && base != "nemotron_h") return;
  JobConfig job = Job("misread");
  job.steps = 1;
  job.adapter->lora = LoraConfig{.rank = 2};
  if (base == "llama_tied") job.adapter->lora->modules_to_save = {"model.embed_tokens"};
  ASSERT_TRUE(RunJob(job)[0].status.ok());
  const Checkpoint trained = Newest(job.checkpoint->directory);
  EXPECT_THAT(std::string(ExportHf(trained, {.to = scratch_ + "/none"}).status().message()),
              HasSubstr(base == "llama_tied"    ? "the head that is tied to it"
                        : base == "deepseek_v3" ? "PEFT would give this adapter to the experts"
                                                : "PEFT refuses adapters of the output of Mamba"));
  EXPECT_FALSE(std::filesystem::exists(scratch_ + "/none"));
  EXPECT_TRUE(ExportHf(trained, {.to = scratch_ + "/whole", .merge = true}).ok());
}

// Those whose gradients make_lora.py saves.
std::vector<LoraCase> WithGradients() {
  std::vector<LoraCase> cases;
  for (const LoraCase& c : kCases) {
    const absl::string_view name = c.name;
    if (name == "qwen3" || name == "gemma3_dora" || name == "nemotron_h_dora") cases.push_back(c);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Peft, GoldenLoraGradients, ::testing::ValuesIn(WithGradients()),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Peft, GoldenLora, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace trainyard::testing
