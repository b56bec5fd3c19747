// Proves for each family of language models, through the service on four ranks with divided tensors
// and ZeRO FULL: a hundred steps on English text bring the loss down, and a run whose rank is
// killed in the middle ends with the checkpoint of an undisturbed one, to the bit. The list is the
// registry's. CI runs one family; scripts/families.sh runs all. And that a job trains a model
// from a Hugging Face directory.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/files.h"
#include "gtest/gtest.h"
#include "models/arch/registry.h"
#include "tests/e2e/service.h"

namespace trainyard::testing {
namespace {

constexpr int kSteps = 100;

// Small values of all fields that a size depends on; a family takes those that it has.
const std::map<std::string, nlohmann::json>& SmallSizes() {
  static const std::map<std::string, nlohmann::json> sizes = {{"layers", 2},
                                                              {"hidden", 32},
                                                              {"ffn", 64},
                                                              {"heads", 4},
                                                              {"head_dim", 8},
                                                              {"vocab", 256},
                                                              {"vocab_multiple", 24},
                                                              {"max_seq", 64},
                                                              {"window", 20},
                                                              {"dense_layers", 1},
                                                              {"q_lora_rank", 16},
                                                              {"kv_lora_rank", 16},
                                                              {"qk_nope_head_dim", 8},
                                                              {"qk_rope_head_dim", 4},
                                                              {"v_head_dim", 8},
                                                              {"moe.experts", 8},
                                                              {"moe.top_k", 2},
                                                              {"moe.expert_ffn", 16},
                                                              {"mamba_heads", 4},
                                                              {"mamba_head_dim", 8},
                                                              {"mamba_groups", 2},
                                                              {"mamba_state", 8},
                                                              {"hybrid_pattern", "ME*-"},
                                                              {"yarn_original_max_seq", 32}};
  return sizes;
}

// A tiny model of the family, as overrides of its first preset.
std::string ModelOf(const Family& family) {
  const Preset& preset = family.presets.front();
  nlohmann::json overrides;
  const ModelFacts facts = FactsOf(preset.config);
  for (const Field& field : FieldsOf(preset.config)) {
    if (absl::string_view(field.rule.name) == "kv_heads") {
      overrides["kv_heads"] = facts.kv_heads == facts.sizes.heads ? 4 : 2;
    }
    const auto size = SmallSizes().find(field.rule.name);
    if (size == SmallSizes().end() || field.rule.fixed) continue;
    std::string path = absl::StrCat("/", field.rule.name);
    std::replace(path.begin(), path.end(), '.', '/');
    overrides[nlohmann::json::json_pointer(path)] = size->second;
  }
  if (overrides.contains("hybrid_pattern")) overrides.erase("layers");  // The pattern says it.
  return absl::StrCat("preset: ", preset.name, ", overrides: ", overrides.dump());
}

// With TRAINYARD_FAMILIES all of them.
std::vector<std::string> LanguageFamilies() {
  if (std::getenv("TRAINYARD_FAMILIES") == nullptr) return {"deepseek_v3"};
  std::vector<std::string> names;
  for (const Family& family : Families()) {
    if (FactsOf(family.presets.front().config).vocab > 0) names.push_back(family.name);
  }
  return names;
}

TestJob JobOf(const std::string& family, const std::string& name) {
  return {.name = name,
          .steps = kSteps,
          .devices = 4,
          .checkpoint_every = 40,
          .directory = "runs/" + name,
          .model = ModelOf(*FindFamily(family)),
          .data = "text: {path: corpus.txt}",
          .more = "parallelism: {tensor: 2, zero: FULL}"};
}

double Mean(const std::vector<nlohmann::json>& steps, size_t first, size_t count) {
  double sum = 0;
  for (size_t i = first; i < first + count; ++i) sum += steps.at(i).at("loss").get<double>();
  return sum / double(count);
}

class FamilyOfModels : public ::testing::TestWithParam<std::string> {};

TEST_P(FamilyOfModels, LearnsTextAndGoesOnToTheBitAfterAKill) {
  Service service(
      {.devices_per_worker = 4, .worker_flags = {"--trainer", FaultyTrainer("kill:60")}});
  const auto corpus =
      ReadFile(std::string(std::getenv("TRAINYARD_SOURCE")) + "/tests/golden/training/corpus.txt");
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  service.Write("corpus.txt", *corpus);

  const std::string calm = service.Submit(JobOf(GetParam(), "undisturbed"));
  ASSERT_EQ(service.WaitForEnd(calm), "SUCCEEDED");
  const std::vector<nlohmann::json> steps = service.Steps(calm);
  ASSERT_EQ(steps.size(), size_t{kSteps});
  const double first = Mean(steps, 0, 10), last = Mean(steps, kSteps - 10, 10);
  EXPECT_LT(last, 0.8 * first);
  RecordProperty("first_losses", absl::StrFormat("%.3f", first));  // For scripts/families_table.py.
  RecordProperty("last_losses", absl::StrFormat("%.3f", last));

  const std::string killed = service.Submit(JobOf(GetParam(), "killed"));
  ASSERT_EQ(service.WaitForEnd(killed), "SUCCEEDED");
  EXPECT_EQ(service.Job(killed).at("restarts"), 1);
  EXPECT_EQ(service.Digest("runs/killed"), service.Digest("runs/undisturbed"));
}

// `submit` reads config.json, the ranks read the weights, and `export` writes them again.
TEST(Import, AJobTrainsAModelFromADirectory) {
  Service service({.workers = 2, .devices_per_worker = 1});
  const std::string model = std::string(std::getenv("TRAINYARD_SOURCE")) + "/tests/golden/hf/llama";
  std::filesystem::copy(model, service.directory() + "/llama");
  service.Write("llama/tokenizer.json", "{}");
  TestJob job{.name = "imported",
              .steps = 2,
              .devices = 2,
              .checkpoint_every = 2,
              .directory = "runs/imported",
              .model = "import: llama"};
  std::string text = job.Text();
  text.replace(text.find("F32"), 3, "F64");
  text.replace(text.find("sequence: 64"), 12, "sequence: 12");
  const Finished submitted = service.Trainyard({"submit", service.Write("spec.yaml", text), "-q"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted;
  const std::string id = submitted.output.substr(0, submitted.output.find('\n'));
  EXPECT_EQ(service.WaitForEnd(id), "SUCCEEDED");
  EXPECT_EQ(service.Job(id).at("/spec/model/import"_json_pointer), "llama");
  const Finished exported = service.Trainyard({"export", "runs/imported", "--to", "exported"});
  EXPECT_EQ(exported.exit_code, 0) << exported;
  EXPECT_EQ(ReadFile(service.directory() + "/exported/tokenizer.json").value_or(""), "{}");
}

INSTANTIATE_TEST_SUITE_P(All, FamilyOfModels, ::testing::ValuesIn(LanguageFamilies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trainyard::testing
