// Proves which layers a job's adapters belong to, what else such a job trains, and what is refused
// of it, with which words.

#include "train/config/adapter.h"

#include <gmock/gmock.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "models/arch/flops.h"
#include "train/config/frozen.h"
#include "train/config/resolve_model.h"
#include "train/config/resolved_job.h"
#include "train/config/validate.h"
#include "train/data/synthetic.h"

namespace trainyard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// `more` is of the adapter's options; `lines` of the job.
std::string Spec(absl::string_view more, absl::string_view lines = "init_from: base") {
  return absl::StrCat(R"(
name: tuned
model: {architecture: {family: llama, layers: 2, hidden: 16, ffn: 24, heads: 4, kv_heads: 2,
                       vocab: 256, max_seq: 64}}
batch: {global: 2, micro: 1, sequence: 32}
data: {text: {path: corpus.txt}}
optimizer: {adamw: {learning_rate: 0.001}}
steps: 2
adapter: {lora: {)",
                      more, "}}\n", lines, "\n");
}

JobConfig Job(absl::string_view more) {
  const absl::StatusOr<JobConfig> job = ParseAndValidateJob(Spec(more));
  EXPECT_TRUE(job.ok()) << job.status();
  return *job;
}

std::string AdapterRefusal(absl::string_view more, absl::string_view lines = "init_from: base") {
  return std::string(ParseAndValidateJob(Spec(more, lines)).status().message());
}

constexpr char kQuery[] = "model.layers.0.self_attn.q_proj";

TEST(Adapter, HasTheDefaultsOfPeft) {
  const LowRank adapter = AdapterOf(Job(""));
  EXPECT_EQ(adapter.rank, 8);
  EXPECT_EQ(adapter.scale, 1);
  EXPECT_EQ(adapter.adapts, nullptr) << "all linear layers";
  EXPECT_EQ(AdapterOf(Job("targets: [all-linear]")).adapts, nullptr);
  EXPECT_EQ(AdapterOf(Job("targets: []")).adapts, nullptr) << "as the messages of the API say it";
  EXPECT_EQ(AdapterOf(Job("rank: 16")).scale, 0.5) << "alpha stays 8";
  EXPECT_EQ(AdapterOf(Job("rank: 16, alpha: 32")).scale, 2);
  EXPECT_EQ(AdapterOf(Job("rank: 16, alpha: 32, rslora: true")).scale, 8);
  EXPECT_FALSE(AdapterOf(Job("rank: 16")).magnitudes);
  EXPECT_TRUE(AdapterOf(Job("rank: 16, dora: true")).magnitudes);
  EXPECT_EQ(AdapterOf(JobConfig()).rank, 0);
}

TEST(Adapter, BelongsToTheLayersThatPatternsMatch) {
  const LowRank adapter = AdapterOf(Job("targets: ['*.q_proj', 'model.layers.1.*']"));
  EXPECT_TRUE(adapter.adapts(kQuery));
  EXPECT_FALSE(adapter.adapts("model.layers.0.self_attn.k_proj"));
  EXPECT_TRUE(adapter.adapts("model.layers.1.mlp.up_proj"));
}

// The same job of a model with experts.
absl::StatusOr<JobConfig> WithExperts(absl::string_view more) {
  return ParseAndValidateJob(
      absl::StrReplaceAll(Spec(more), {{"family: llama",
                                        "family: qwen3_moe, moe: {experts: 4, "
                                        "top_k: 2, expert_ffn: 8}"}}));
}

// Bug it must catch: a pattern for all layers, or the default, trains other layers than it says.
TEST(Adapter, OfExpertsIsChosenByTheirNamesInPeft) {
  const auto trained = [](absl::string_view more) {
    const absl::StatusOr<JobConfig> job = WithExperts(more);
    CHECK(job.ok()) << job.status();
    std::set<std::string> targets;
    for (const ParameterSpec& spec : TrainedParameters(*job, *ResolveModel(job->model))) {
      const std::string target = TargetOf(AdaptedModuleOf(spec.name));
      if (target.starts_with("model.layers.1.")) targets.insert(target.substr(15));
    }
    return targets;
  };
  const std::set<std::string> linear = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                        "self_attn.o_proj"};
  std::set<std::string> all = linear;
  EXPECT_EQ(trained(""), linear);
  EXPECT_EQ(trained("targets: [all-linear]"), linear);
  all.insert("mlp.experts.down_proj");
  EXPECT_EQ(trained("targets: [all-linear, '*.experts.down_proj']"), all);
  all.insert("mlp.experts.gate_up_proj");
  EXPECT_EQ(trained("targets: ['*', '*.experts.*']"), all);
  EXPECT_EQ(trained("targets: ['*']"), linear) << "as in PEFT, where it means no parameters";
  EXPECT_EQ(trained("targets: ['*.experts.*', all-linear]"), all);
  EXPECT_EQ(trained("targets: [model.layers.1.mlp.experts.gate_up_proj]"),
            std::set<std::string>{"mlp.experts.gate_up_proj"});
}

TEST(Adapter, OfExpertsHasWhatPeftHasForThem) {
  const auto refusal = [](absl::string_view more) {
    return std::string(WithExperts(more).status().message());
  };
  EXPECT_THAT(refusal("targets: ['*.experts.*'], dropout: 0.1"),
              HasSubstr("adapter.lora.dropout: wanted 0 for adapters of experts: "
                        "model.layers.0.mlp.experts.gate_up_proj, found 0.1; nearest 0"));
  EXPECT_THAT(refusal("targets: ['*.down_proj']"), HasSubstr("found \"*.down_proj\""));
  EXPECT_THAT(refusal("targets: ['*.experts.gate_proj']"),
              HasSubstr("nearest \"model.layers.0.mlp.experts."));
  EXPECT_THAT(refusal("targets: [all-linear, '*']"), HasSubstr("found \"*\""));
  EXPECT_THAT(refusal("targets: ['*experts*'], dora: true"),
              HasSubstr("adapter.lora.dora: wanted false for adapters of experts: "));
  EXPECT_EQ(refusal("dropout: 0.1, dora: true"), "") << "not of experts";
  EXPECT_THAT(refusal("targets: ['*.experts.3.down_proj']"),
              HasSubstr("or the experts of a layer, found \"*.experts.3.down_proj\""));
  EXPECT_THAT(refusal("targets: [experts.down_proj]"),
              HasSubstr("nearest \"*.experts.down_proj\""));
  EXPECT_THAT(refusal("targets: [all-linear, '*.q_proj']"),
              HasSubstr("a pattern that matches experts, beside all-linear, found \"*.q_proj\""));
}

TEST(Adapter, TargetsHaveNoNumbersOfExperts) {
  EXPECT_EQ(TargetOf("model.layers.3.mlp.experts.12.down_proj"),
            "model.layers.3.mlp.experts.down_proj");
  EXPECT_EQ(TargetOf("model.layers.3.mlp.experts.*.down_proj"),
            "model.layers.3.mlp.experts.down_proj");
  for (const char* name :
       {"model.layers.3.mlp.experts.down_proj", "model.layers.3.mlp.shared_experts.down_proj",
        "model.layers.3.experts.3", "model.layers.3.experts.3x.down_proj", ""}) {
    EXPECT_EQ(TargetOf(name), name);
  }
}

TEST(Adapter, IsTrainedWithTheModulesToSaveAlone) {
  const Recorder::IsFrozen frozen =
      FrozenBy(Job("modules_to_save: [lm_head, '*.input_layernorm']"));
  const auto is_frozen = [&](std::string name) { return frozen({.name = name, .shape = {1}}); };
  EXPECT_FALSE(is_frozen(absl::StrCat(kQuery, kLowRankDown)));
  EXPECT_FALSE(is_frozen(absl::StrCat(kQuery, kLowRankUp)));
  EXPECT_FALSE(is_frozen(absl::StrCat(kQuery, kMagnitudeOffset)));
  EXPECT_FALSE(is_frozen("lm_head.weight"));
  EXPECT_FALSE(is_frozen("model.layers.1.input_layernorm.weight"));
  EXPECT_TRUE(is_frozen(absl::StrCat(kQuery, ".weight")));
  EXPECT_TRUE(is_frozen("model.norm.weight"));
}

TEST(Adapter, RefusesPatternsThatMatchNothing) {
  EXPECT_THAT(
      AdapterRefusal("targets: ['*.k_proj', q_proj]"),
      AllOf(HasSubstr(
                "adapter.lora.targets[1]: wanted a pattern that matches a linear layer that is no "
                "head or router, or the experts of a layer, found \"q_proj\"; nearest "
                "\"*.q_proj\""),
            ::testing::Not(HasSubstr("targets[0]"))));
  EXPECT_THAT(AdapterRefusal("targets: [model.layers.0.self_attn.qproj]"),
              HasSubstr(absl::StrCat("nearest \"", kQuery, "\"")));
  EXPECT_THAT(AdapterRefusal("targets: [lm_head]"), HasSubstr("targets[0]: wanted a pattern"));
  EXPECT_THAT(
      AdapterRefusal("modules_to_save: [lm_heat]"),
      HasSubstr("adapter.lora.modules_to_save[0]: wanted a pattern that matches a module of "
                "the model, found \"lm_heat\"; nearest \"lm_head\""));
}

TEST(Adapter, OfABaseOfRandomWeightsIsForMeasuring) {
  JobConfig job = Job("");
  job.init_from.clear();
  job.data = SyntheticData{};
  Violations violations;
  Validate(job, violations);
  EXPECT_TRUE(violations.empty()) << violations.ToStatus();
}

TEST(Adapter, RefusesContradictions) {
  EXPECT_THAT(AdapterRefusal("", "seed: 1"),
              HasSubstr("adapter: wanted a base whose parameters are trained already: model.import "
                        "or init_from, found neither"));
  EXPECT_THAT(AdapterRefusal("", "init_from: base\nfrozen: ['*norm*']"),
              HasSubstr("frozen: wanted none beside an adapter"));
  EXPECT_THAT(AdapterRefusal("", "init_from: base\ntrainable: ['*norm*']"),
              HasSubstr("trainable: wanted none beside an adapter"));
  EXPECT_THAT(AdapterRefusal("", "init_from: base\ninit_from_subset: true"),
              HasSubstr("init_from_subset: wanted false beside an adapter"));
  EXPECT_THAT(AdapterRefusal("targets: [all-linear, '*.q_proj']"),
              HasSubstr("adapter.lora.targets[1]: wanted a pattern that matches experts, beside "
                        "all-linear, found \"*.q_proj\"; nearest \"all-linear\""));
  EXPECT_THAT(AdapterRefusal("modules_to_save: ['*.q_proj']"),
              HasSubstr(absl::StrCat("modules that are no targets, found \"", kQuery, "\"")));
}

TEST(Adapter, RefusesNumbersOutOfRange) {
  EXPECT_THAT(
      AdapterRefusal("rank: 1025"),
      HasSubstr("adapter.lora.rank: wanted 1 to 1024 (usual: 8 to 64), found 1025; nearest 1024"));
  EXPECT_THAT(AdapterRefusal("rank: 0"), HasSubstr("found 0; nearest 1"));
  EXPECT_THAT(AdapterRefusal("rank: -1"), HasSubstr("adapter.lora.rank"));
  EXPECT_THAT(AdapterRefusal("alpha: 0"), HasSubstr("adapter.lora.alpha: wanted"));
  EXPECT_THAT(AdapterRefusal("dropout: 1"),
              HasSubstr("adapter.lora.dropout: wanted 0 <= x < 1 (usual: 0 to 0.1), found 1; "
                        "nearest 0.99"));
  EXPECT_THAT(AdapterRefusal("ranks: 4"), HasSubstr("adapter.lora.ranks"));
  EXPECT_THAT(std::string(ParseAndValidateJob("name: a\nadapter: {}").status().message()),
              HasSubstr("adapter.lora: wanted the adapter's options, found none"));
}

TEST(Adapter, IsInTheResolvedJob) {
  const JobConfig job =
      Job("rank: 4, targets: ['*.q_proj'], modules_to_save: [lm_head], dropout: 0.1");
  const absl::StatusOr<JobConfig> read = ParseAndValidateJob(ResolvedJobText(job));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ResolvedJobText(*read), ResolvedJobText(job));
  EXPECT_EQ(read->adapter->lora->targets, job.adapter->lora->targets);
  EXPECT_EQ(read->adapter->lora->rank, 4);
  EXPECT_EQ(AdapterOf(*read).dropout, 0.1);
}

// Two products of each narrow matrix forward, and two each backward; of the base, the gradients of
// weights are missing.
TEST(Adapter, CountsItsFlops) {
  const JobConfig job = Job("rank: 4, targets: ['*.up_proj']");
  const ModelConfig model = *ResolveModel(job.model);
  // The first layer's backward pass ends at its adapter, so only an upper limit is simple.
  const double all = FlopsPerToken(model, job.batch.sequence).total();
  const double trained = TrainedFlopsPerToken(job, model);
  EXPECT_LT(trained, all);
  EXPECT_GT(trained, all / 3);
  JobConfig wider = job;
  wider.adapter->lora->rank = 5;
  // One more column: 2 products forward and 3 backward of the first layer's, which has no input
  // gradient, and 4 of the second's, for two multiplications and additions each.
  const double column = 2.0 * (2 * 3 * (16 + 24)) - 2.0 * 16;
  EXPECT_NEAR(TrainedFlopsPerToken(wider, model) - trained, column, 1e-6 * all);
}

}  // namespace
}  // namespace trainyard
