// Proves that a job which a controller has resolved means to a rank what the spec meant to the
// controller, that its text has every field, and that a rank refuses a text which lacks one, has
// another, or is of another format.

#include "train/config/resolved_job.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "models/arch/registry.h"
#include "train/config/parse.h"
#include "train/config/resolve_model.h"
#include "train/config/validate.h"
#include "train/data/arrays.h"
#include "train/data/blend.h"
#include "train/data/indexed.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

constexpr char kRest[] =
    ", batch: {global: 8, micro: 1, sequence: 64}, data: {synthetic: {}},"
    " optimizer: {adamw: {learning_rate: 3e-4}}, steps: 10}";

constexpr char kOfImages[] =
    ", batch: {global: 8, micro: 1, sequence: 256},"
    " data: {arrays: {latents: x.npy, labels: y.npy}},"
    " optimizer: {adamw: {learning_rate: 1e-4}}, steps: 10}";

JobConfig Valid(const std::string& spec) {
  absl::StatusOr<JobConfig> job = ParseAndValidateJob(spec);
  EXPECT_TRUE(job.ok()) << spec << job.status();
  return job.ok() ? *std::move(job) : JobConfig();
}

JobConfig Reread(const std::string& text) {
  absl::StatusOr<JobConfig> job = ParseJobConfig(text);
  EXPECT_TRUE(job.ok()) << text << job.status();
  return job.ok() ? *std::move(job) : JobConfig();
}

// The text is the whole of a job, so that equal texts are equal jobs.
void ExpectSameAfterReading(const JobConfig& job) {
  const std::string text = ResolvedJobText(job);
  EXPECT_EQ(ResolvedJobText(Reread(text)), text);
}

TEST(ResolvedJob, EveryPresetIsTheSameModelAgain) {
  for (const std::string& preset : PresetNames()) {
    SCOPED_TRACE(preset);
    const bool of_text = FactsOf(FindPreset(preset)->config).vocab > 0;
    const JobConfig job =
        Valid(absl::StrCat("{name: a, model: {preset: ", preset, "}", of_text ? kRest : kOfImages));
    const JobConfig read = Reread(ResolvedJobText(job));
    const absl::StatusOr<ModelConfig> before = ResolveModel(job.model);
    const absl::StatusOr<ModelConfig> after = ResolveModel(read.model);
    ASSERT_TRUE(before.ok() && after.ok()) << before.status() << after.status();
    EXPECT_TRUE(*before == *after);
    EXPECT_EQ(read.model.preset, "");
    ExpectSameAfterReading(job);
  }
}

TEST(ResolvedJob, OverridesThatImplyOthersAreTheSameModelAgain) {
  for (const char* overrides :
       {"layers: 2, hidden: 256, heads: 8", "rope_base: 10000.0", "norm_eps: 0.0123456789012345678",
        "rope_scaling: {factor: 4.0}", "tied: true, head_dim: 64"}) {
    SCOPED_TRACE(overrides);
    const JobConfig job = Valid(absl::StrCat("{name: a, model: {preset: llama3.1-8b, overrides: {",
                                             overrides, "}}", kRest));
    const absl::StatusOr<ModelConfig> before = ResolveModel(job.model);
    const absl::StatusOr<ModelConfig> after = ResolveModel(Reread(ResolvedJobText(job)).model);
    ASSERT_TRUE(before.ok() && after.ok()) << before.status() << after.status();
    EXPECT_TRUE(*before == *after);
  }
}

TEST(ResolvedJob, EveryFieldOfASpecSurvives) {
  const JobConfig job = Valid(R"(
name: whole
model: {preset: qwen3-30b-a3b, overrides: {layers: 8}}
precision: F32
deterministic: false
parallelism: {tensor: 2, pipeline: 2, expert: 2, expert_split: EXPERT, zero: OPTIMIZER,
              reduction: BF16, schedule: V_HALF, context_exchange: ALL_GATHER}
recompute: {blocks: 1, norms_and_activations: true}
batch: {global: 32, micro: 2, sequence: 256}
data: {indexed: {prefix: corpus, validation_fraction: 0.02, reset_attention_mask: true,
                 eod_mask_loss: true}}
optimizer:
  adamw: {learning_rate: 3.1e-4, beta1: 0.8, beta2: 0.99, epsilon: 1e-7, weight_decay: 0.2}
  schedule: {linear: {warmup_steps: 20, min_ratio: 0.05}}
  clip_norm: 0.5
  offload: true
steps: 200
validation: {every_steps: 50, batches: 4}
checkpoint: {directory: runs/a, every_steps: 50, keep: 3}
profile: {directory: traces, start_step: 3, steps: 2, ranks: [0, 3], nccl_trace: true}
devices: 8
seed: 18446744073709551615
priority: -5
init_from: runs/b
init_from_subset: true
max_restarts: 0
labels: {team: a, note: "ünï \"x\" \\"}
)");
  const JobConfig read = Reread(ResolvedJobText(job));
  EXPECT_EQ(read.seed, 18446744073709551615u);
  EXPECT_TRUE(read.init_from_subset);
  EXPECT_TRUE(read.optimizer.offload);
  EXPECT_EQ(read.labels, job.labels);
  EXPECT_EQ(read.profile->ranks, job.profile->ranks);
  EXPECT_EQ(read.parallelism.virtual_pipeline, 2);
  EXPECT_EQ(read.optimizer.options["learning_rate"], 3.1e-4);
  EXPECT_EQ(read.data.As<IndexedData>().prefix, "corpus");
  EXPECT_TRUE(read.data.As<IndexedData>().reset_attention_mask);
  EXPECT_TRUE(read.data.As<IndexedData>().eod_mask_loss);
  ExpectSameAfterReading(job);
}

TEST(ResolvedJob, EveryOptionOfEachOptimizerSurvives) {
  JobConfig job = Valid(absl::StrCat("{name: a, model: {preset: gpt2-124m}", kRest));
  for (const Optimizer* const optimizer : Optimizers()) {
    job.optimizer.options = OptimizerOptions(*optimizer);
    double value = 0.5;
    for (const OptimizerOption& option : optimizer->options) {
      value /= 2;
      job.optimizer.options[option.name] = option.choices.empty() ? value : 1;
    }
    EXPECT_EQ(Reread(ResolvedJobText(job)).optimizer.options, job.optimizer.options)
        << optimizer->name;
    ExpectSameAfterReading(job);
  }
}

TEST(ResolvedJob, AnImportSurvives) {
  const JobConfig job = Valid(absl::StrCat(
      "{name: a, model: {import: weights/a, architecture: {family: llama, layers: 2, hidden: 64, "
      "ffn: 128, heads: 4, vocab: 257, vocab_multiple: 8}}",
      kRest));
  const JobConfig read = Reread(ResolvedJobText(job));
  EXPECT_EQ(read.model.import_path, "weights/a");
  EXPECT_TRUE(*ResolveModel(read.model) == *ResolveModel(job.model));
  ExpectSameAfterReading(job);
}

TEST(ResolvedJob, EveryFieldOfArraysSurvives) {
  JobConfig job = Valid(absl::StrCat("{name: a, model: {preset: gpt2-124m}", kRest));
  const auto read = ParseJobConfig(
      "{data: {arrays: {latents: x.npy, labels: y.npy, prediction_type: V_PREDICTION,"
      " label_dropout: 0.1, validation_fraction: 0.02}}}");
  ASSERT_TRUE(read.ok()) << read.status();
  job.data = read->data;
  const ArraysData arrays = Reread(ResolvedJobText(job)).data.As<ArraysData>();
  EXPECT_EQ(arrays.latents, "x.npy");
  EXPECT_EQ(arrays.labels, "y.npy");
  EXPECT_EQ(arrays.prediction_type, PredictionType::kVPrediction);
  EXPECT_EQ(arrays.label_dropout, 0.1);
  EXPECT_EQ(arrays.validation_fraction, 0.02);
  ExpectSameAfterReading(job);
}

TEST(ResolvedJob, EveryFieldOfABlendAndOfADecaySurvives) {
  JobConfig job = Valid(
      "{name: a, model: {preset: qwen3-30b-a3b, overrides: {moe: {aux_loss_scope: SEQUENCE}}},"
      " data: {blend: {datasets: [{weight: 0.7, prefix: a}, {weight: 2, prefix: b}],"
      " validation_fraction: 0.02, reset_attention_mask: true, eod_mask_loss: true}},"
      " batch: {global: 8, micro: 1, sequence: 64}, steps: 10, optimizer: {adamw: {learning_rate: "
      "1e-3}, schedule: {wsd: {warmup_steps: 1, decay_steps: 4, decay_style: MINUS_SQRT}}}}");
  const JobConfig read = Reread(ResolvedJobText(job));
  const BlendData& blend = read.data.As<BlendData>();
  ASSERT_EQ(blend.datasets.size(), 2u);
  EXPECT_EQ(blend.datasets[0].weight, 0.7);
  EXPECT_EQ(blend.datasets[0].prefix, "a");
  EXPECT_EQ(blend.datasets[1].weight, 2);
  EXPECT_EQ(blend.datasets[1].prefix, "b");
  EXPECT_EQ(blend.datasets[1].path, "");
  EXPECT_EQ(blend.validation_fraction, 0.02);
  EXPECT_TRUE(blend.reset_attention_mask);
  EXPECT_TRUE(blend.eod_mask_loss);
  EXPECT_EQ(read.optimizer.schedule.shape, ScheduleShape::kWsd);
  EXPECT_EQ(read.optimizer.schedule.decay_steps, 4);
  EXPECT_EQ(read.optimizer.schedule.decay_style, DecayStyle::kMinusSqrt);
  const Json moe = Json::parse(ResolvedJobText(job)).at("model").at("architecture").at("moe");
  EXPECT_EQ(moe.at("aux_loss_scope"), "SEQUENCE");
  ExpectSameAfterReading(job);
}

// What the spec leaves open is said, so that another release's default changes nothing.
TEST(ResolvedJob, SaysWhatTheSpecLeftOpen) {
  const JobConfig job = Valid(
      "{name: a, model: {preset: gpt2-124m, overrides: {vocab: 256}}, data: {text: {path: a}},"
      " batch: {global: 8, micro: 1, sequence: 64}, steps: 10,"
      " optimizer: {adamw: {learning_rate: 1e-3}, schedule: {cosine: {}}}}");
  const Json json = Json::parse(ResolvedJobText(job));
  EXPECT_EQ(json.at("format"), kResolvedJobFormat);
  EXPECT_EQ(json.at("model").at("architecture").at("family"), "gpt3");
  EXPECT_EQ(json.at("parallelism").at("schedule"), "ONE_F_ONE_B");
  EXPECT_EQ(json.at("optimizer").at("schedule").at("cosine").at("min_ratio"), 0.1);
  EXPECT_EQ(json.at("data").at("text").at("tokenizer"), "BYTES");
  EXPECT_TRUE(json.at("checkpoint").is_null());
  EXPECT_TRUE(IsResolvedJob(json.dump()));
  EXPECT_FALSE(IsResolvedJob(R"({"name":"a"})"));
}

// Every field in turn is taken away, at any depth; the text of a spec would have its default.
void WithoutEach(const Json& whole, const std::string& path, Json& at, int& removed) {
  if (!at.is_object()) return;
  std::vector<std::string> names;
  for (const auto& [name, value] : at.items()) names.push_back(name);
  for (const std::string& name : names) {
    const std::string field = path.empty() ? name : absl::StrCat(path, ".", name);
    if (field == "format") continue;  // Without it, the text is a spec.
    const Json kept = at[name];
    at.erase(name);
    const absl::StatusOr<JobConfig> job = ParseJobConfig(whole.dump());
    EXPECT_FALSE(job.ok()) << field;
    // Of the names of a choice, one has to be there.
    const bool choice = path == "data" || path == "optimizer.schedule";
    EXPECT_THAT(std::string(job.status().message()), HasSubstr(choice ? path : field));
    ++removed;
    at[name] = kept;
    if (field != "labels") WithoutEach(whole, field, at[name], removed);
  }
}

TEST(ResolvedJob, AFieldThatIsMissingIsRefused) {
  const JobConfig job =
      Valid(absl::StrCat("{name: a, model: {preset: llama3.1-8b}, validation: {every_steps: 2},"
                         " checkpoint: {directory: a}, profile: {directory: b, start_step: 1}",
                         kRest));
  Json json = Json::parse(ResolvedJobText(job));
  int removed = 0;
  WithoutEach(json, "", json, removed);
  EXPECT_GT(removed, 60);
}

TEST(ResolvedJob, AFieldOrAFormatOfAnotherReleaseIsRefused) {
  const JobConfig job = Valid(absl::StrCat("{name: a, model: {preset: gpt2-124m}", kRest));
  Json json = Json::parse(ResolvedJobText(job));
  json["optimizer"]["shampoo"] = 1;
  EXPECT_THAT(std::string(ParseJobConfig(json.dump()).status().message()),
              HasSubstr("optimizer.shampoo: unknown field"));
  json["optimizer"].erase("shampoo");
  json["model"]["architecture"]["gate_width"] = 1;
  EXPECT_THAT(std::string(ParseJobConfig(json.dump()).status().message()),
              HasSubstr("model.architecture.gate_width: unknown field"));
  json["format"] = kResolvedJobFormat + 1;
  Violations violations;
  ParseAndValidateTrainer(absl::StrCat(R"({"version": 1, "job": )", json.dump(), "}"), violations);
  ASSERT_EQ(violations.list().size(), 1u) << violations.ToStatus();
  EXPECT_EQ(violations.list()[0].field, "job");
  EXPECT_THAT(violations.list()[0].Description(),
              HasSubstr(absl::StrCat("format ", kResolvedJobFormat + 1)));
}

}  // namespace
}  // namespace trainyard
