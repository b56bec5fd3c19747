// Proves that the patterns that `import` prints for an adapter train what the adapter has, and no
// more, in a job: layers of one kind, one layer, single layers, experts, modules, and all.

#include "train/config/adapter_patterns.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "train/config/adapter.h"
#include "train/config/frozen.h"
#include "train/config/resolve_model.h"
#include "train/config/validate.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;

// A job whose adapter is `lora`, of a model with experts in each layer or without.
JobConfig JobWith(const std::string& lora, bool experts) {
  const absl::StatusOr<JobConfig> job = ParseAndValidateJob(absl::StrCat(
      "name: tuned\nmodel: {architecture: {family: ",
      experts ? "qwen3_moe, moe: {experts: 4, top_k: 2, expert_ffn: 8}" : "llama",
      ", layers: 3, hidden: 16, ffn: 24, heads: 4, kv_heads: 2, vocab: 256, max_seq: 64}}\n",
      "batch: {global: 2, micro: 1, sequence: 32}\ndata: {text: {path: corpus.txt}}\n",
      "optimizer: {adamw: {learning_rate: 0.001}}\nsteps: 2\ninit_from: base\n",
      "adapter: {lora: {", lora, "}}\n"));
  EXPECT_TRUE(job.ok()) << job.status();
  return *job;
}

// The names of all parameters that the job trains, with a star for the numbers of experts.
std::set<std::string> TrainedBy(const JobConfig& job, const ModelConfig& model) {
  std::set<std::string> names;
  for (const ParameterSpec& spec : TrainedParameters(job, model)) names.insert(spec.name);
  return names;
}

// The adapter that the patterns describe must be that of `lora`.
LoraConfig ThereAndBack(const std::string& lora, bool experts = false) {
  JobConfig job = JobWith(lora, experts);
  const ModelConfig model = *ResolveModel(job.model);
  const std::set<std::string> trained = TrainedBy(job, model);
  const LoraConfig again = AdapterThatTrains(model, *LoraNumbersOf(job), trained);
  Violations violations;
  job.adapter->lora = again;
  ValidateAdapter(job, &model, violations);
  EXPECT_TRUE(violations.empty()) << violations.ToStatus();
  EXPECT_EQ(TrainedBy(job, model), trained) << absl::StrJoin(again.targets, ", ");
  return again;
}

TEST(AdapterPatterns, TrainTheSame) {
  EXPECT_THAT(ThereAndBack("rank: 3, alpha: 5, rslora: true").targets, ElementsAre("all-linear"));
  EXPECT_EQ(ThereAndBack("rank: 3").rank, 3);
  EXPECT_EQ(ThereAndBack("alpha: 5").alpha, 5);
  EXPECT_TRUE(ThereAndBack("rslora: true").rslora);
  EXPECT_TRUE(ThereAndBack("dora: true").dora);
  EXPECT_THAT(ThereAndBack("targets: ['*.q_proj', '*.down_proj']").targets,
              ElementsAre("*.down_proj", "*.q_proj"));
  EXPECT_THAT(ThereAndBack("targets: ['model.layers.1.*']").targets,
              ElementsAre("model.layers.1.*"));
  EXPECT_THAT(ThereAndBack("targets: [model.layers.2.mlp.up_proj]").targets,
              ElementsAre("*.2.mlp.up_proj"));
  const LoraConfig saved =
      ThereAndBack("targets: ['*.v_proj'], modules_to_save: [lm_head, '*_layernorm']");
  EXPECT_THAT(saved.modules_to_save,
              ElementsAre("lm_head", "*.input_layernorm", "*.post_attention_layernorm"));
  EXPECT_THAT(ThereAndBack("targets: ['*.v_proj'], modules_to_save: [model.norm]").modules_to_save,
              ElementsAre("*.norm"));
}

// Bug it must catch: a pattern of a dense layer chooses experts, or the other way round.
TEST(AdapterPatterns, TrainTheSameExperts) {
  EXPECT_THAT(ThereAndBack("targets: [all-linear]", true).targets, ElementsAre("all-linear"));
  EXPECT_THAT(ThereAndBack("targets: [all-linear, '*.experts.*']", true).targets,
              ElementsAre("all-linear", "*.experts.*"));
  EXPECT_THAT(ThereAndBack("targets: ['*.experts.down_proj']", true).targets,
              ElementsAre("*.experts.down_proj"));
  EXPECT_THAT(ThereAndBack("targets: ['model.layers.1.mlp.experts.*', '*.q_proj']", true).targets,
              ElementsAre("*.q_proj", "model.layers.1.mlp.experts.*"));
}

}  // namespace
}  // namespace trainyard
