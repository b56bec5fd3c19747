// Proves that every field of a spec lands where it belongs, from YAML as people write it and from
// protobuf JSON as the controller sends it, and that every problem of a text is reported at once,
// with its path.

#include "train/config/parse.h"

#include <gmock/gmock.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/json_fields.h"
#include "common/violations.h"
#include "tests/testing/parse_trainer.h"
#include "train/data/text.h"

namespace trainyard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kYaml[] = R"(
name: llama-tiny
model:
  preset: llama3-8b
  overrides: {layers: 4, hidden: 256, ffn: 768, heads: 8, kv_heads: 4, vocab: 256}
precision: F32
parallelism: {tensor: 1, pipeline: 1, virtual_pipeline: 1, context: 1, expert: 1,
              zero: NONE, reduction: BF16, schedule: ZERO_BUBBLE,
              context_exchange: ALL_GATHER}
recompute: {blocks: 3, norms_and_activations: true}
deterministic: false
batch: {global: 32, micro: 4, sequence: 256}
data: {text: {path: corpus.txt, tokenizer: BYTES, validation_fraction: 0.02}}
optimizer:
  adamw: {learning_rate: 3e-4, weight_decay: 0.2}
  schedule: {cosine: {warmup_steps: 20}}
  clip_norm: 0.5
  offload: true
steps: 200
validation: {every_steps: 50, batches: 4}
checkpoint: {directory: runs/llama-tiny, every_steps: 50, keep: 3}
profile: {directory: traces, start_step: 10, steps: 2, ranks: [0, 3], nccl_trace: true}
devices: 4
seed: 18446744073709551615
priority: -7
init_from: runs/other/step-5
init_from_subset: true
frozen: ["model.layers.0.*", lm_head.weight]
trainable: ["*norm*"]
max_restarts: 0
labels: {team: a, "run": "7"}
)";

// The same job as protobuf 3.21 prints it with original field names: on one line.
constexpr char kJson[] =
    R"({"name":"llama-tiny","model":{"preset":"llama3-8b","overrides":{"layers":4,)"
    R"("hidden":256,"ffn":768,"heads":8,"kv_heads":4,"vocab":256}},)"
    R"("precision":"PRECISION_F32","parallelism":{"tensor":1,"pipeline":1,)"
    R"("virtual_pipeline":1,"context":1,"expert":1,"zero":"ZERO_NONE",)"
    R"("reduction":"REDUCTION_BF16",)"
    R"("schedule":"PIPELINE_SCHEDULE_ZERO_BUBBLE",)"
    R"("context_exchange":"CONTEXT_EXCHANGE_ALL_GATHER"},)"
    R"("recompute":{"blocks":3,"norms_and_activations":true},"deterministic":false,)"
    R"("batch":{"global":32,"micro":4,"sequence":256},)"
    R"("data":{"text":{"path":"corpus.txt","tokenizer":"TOKENIZER_BYTES",)"
    R"("validation_fraction":0.02}},)"
    R"("optimizer":{"adamw":{"learning_rate":0.0003,"weight_decay":0.2},)"
    R"("schedule":{"cosine":{"warmup_steps":"20"}},"clip_norm":0.5,"offload":true},"steps":"200",)"
    R"("validation":{"every_steps":"50","batches":4},)"
    R"("checkpoint":{"directory":"runs/llama-tiny","every_steps":"50","keep":3},)"
    R"("profile":{"directory":"traces","start_step":"10","steps":2,"ranks":[0,3],)"
    R"("nccl_trace":true},"devices":4,)"
    R"("seed":"18446744073709551615","priority":-7,"init_from":"runs/other/step-5",)"
    R"("init_from_subset":true,"frozen":["model.layers.0.*","lm_head.weight"],)"
    R"("trainable":["*norm*"],)"
    R"("max_restarts":0,"labels":{"run":"7","team":"a"}})";

class SameJob : public ::testing::TestWithParam<const char*> {};

TEST_P(SameJob, LandsInEveryField) {
  const auto job = ParseJobConfig(GetParam());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name, "llama-tiny");
  EXPECT_EQ(job->model.preset, "llama3-8b");
  ASSERT_TRUE(job->model.overrides.has_value());
  EXPECT_FALSE(job->model.architecture.has_value());
  EXPECT_EQ(job->model.overrides->fields.at("layers"), FieldValue(4));
  EXPECT_EQ(job->model.overrides->fields.at("ffn"), FieldValue(768));
  EXPECT_EQ(job->model.overrides->fields.at("kv_heads"), FieldValue(4));
  EXPECT_FALSE(job->model.overrides->fields.contains("head_dim"));
  EXPECT_EQ(job->precision, PrecisionName::kF32);
  EXPECT_FALSE(job->deterministic);
  EXPECT_EQ(job->parallelism.zero, Zero::kNone);
  EXPECT_EQ(job->parallelism.reduction, Reduction::kBF16);
  EXPECT_EQ(job->parallelism.schedule, FindSchedule("ZERO_BUBBLE"));
  EXPECT_EQ(job->parallelism.context_exchange, ContextExchange::kAllGather);
  EXPECT_EQ(job->recompute.blocks, 3);
  EXPECT_TRUE(job->recompute.norms_and_activations);
  EXPECT_EQ(job->batch.global, 32);
  EXPECT_EQ(job->batch.micro, 4);
  EXPECT_EQ(job->batch.sequence, 256);
  const auto* text = &job->data.As<TextData>();
  ASSERT_NE(text, nullptr);
  EXPECT_EQ(text->path, "corpus.txt");
  EXPECT_EQ(text->validation_fraction, 0.02);
  EXPECT_EQ(job->optimizer.options["learning_rate"], 3e-4);
  EXPECT_EQ(job->optimizer.options["beta2"], 0.95);
  EXPECT_EQ(job->optimizer.options["weight_decay"], 0.2);
  EXPECT_EQ(job->optimizer.schedule.shape, ScheduleShape::kCosine);
  EXPECT_EQ(job->optimizer.schedule.warmup_steps, 20);
  EXPECT_EQ(MinRatio(job->optimizer.schedule), 0.1);
  EXPECT_EQ(job->optimizer.clip_norm, 0.5);
  EXPECT_TRUE(job->optimizer.offload);
  EXPECT_EQ(job->steps, 200);
  EXPECT_EQ(job->validation->every_steps, 50);
  EXPECT_EQ(job->validation->batches, 4);
  EXPECT_EQ(job->checkpoint->directory, "runs/llama-tiny");
  EXPECT_EQ(job->checkpoint->keep, 3);
  EXPECT_EQ(job->profile->directory, "traces");
  EXPECT_EQ(job->profile->start_step, 10);
  EXPECT_EQ(job->profile->steps, 2);
  EXPECT_THAT(job->profile->ranks, ElementsAre(0, 3));
  EXPECT_TRUE(job->profile->nccl_trace);
  EXPECT_EQ(job->devices, 4);
  EXPECT_EQ(DataParallel(*job), 4);
  EXPECT_EQ(AccumulationSteps(*job), 2);
  EXPECT_EQ(job->seed, 18446744073709551615u);
  EXPECT_EQ(job->priority, -7);
  EXPECT_EQ(job->init_from, "runs/other/step-5");
  EXPECT_TRUE(job->init_from_subset);
  EXPECT_THAT(job->frozen, ElementsAre("model.layers.0.*", "lm_head.weight"));
  EXPECT_THAT(job->trainable, ElementsAre("*norm*"));
  EXPECT_EQ(job->max_restarts, 0);
  EXPECT_EQ(job->labels, (std::map<std::string, std::string>{{"run", "7"}, {"team", "a"}}));
}
INSTANTIATE_TEST_SUITE_P(Texts, SameJob, ::testing::Values(kYaml, kJson));

TEST(ParseJobConfig, ExpertsLandInEveryField) {
  const auto job = ParseJobConfig(
      "{model: {architecture: {family: qwen3_moe, moe: {experts: 8, top_k: 2, expert_ffn: 32, "
      "shared_experts: 1, shared_ffn: 48, router: SIGMOID, expert_bias: true, "
      "bias_update_rate: 2e-3, aux_loss: 1e-4, aux_loss_scope: SEQUENCE, groups: 4, topk_groups: "
      "2, norm_topk: false, "
      "routed_scaling: 2.5, fake_balanced: true}}}, "
      "parallelism: {expert: 4, expert_split: EXPERT_SPLIT_EXPERT_TENSOR_CONTEXT}}");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->model.architecture->fields, (GivenFields{{"moe.experts", 8},
                                                          {"moe.top_k", 2},
                                                          {"moe.expert_ffn", 32},
                                                          {"moe.shared_experts", 1},
                                                          {"moe.shared_ffn", 48},
                                                          {"moe.router", "SIGMOID"},
                                                          {"moe.expert_bias", true},
                                                          {"moe.bias_update_rate", 2e-3},
                                                          {"moe.aux_loss", 1e-4},
                                                          {"moe.aux_loss_scope", "SEQUENCE"},
                                                          {"moe.groups", 4},
                                                          {"moe.topk_groups", 2},
                                                          {"moe.norm_topk", false},
                                                          {"moe.routed_scaling", 2.5},
                                                          {"moe.fake_balanced", true}}));
  EXPECT_EQ(job->parallelism.expert, 4);
  EXPECT_EQ(job->parallelism.expert_split, ExpertSplit::kExpertTensorContext);
  EXPECT_THAT(std::string(ParseJobConfig("{model: {overrides: {moe: {router: TOPK, expert: 1}}}}")
                              .status()
                              .message()),
              AllOf(HasSubstr("model.overrides.moe.router: "),
                    HasSubstr("model.overrides.moe.expert: unknown field; did you mean")));
}

// What a client renders of the wire: fields that only one family has in a mapping, as text.
TEST(ParseJobConfig, FieldsInAMappingCountAsBesideIt) {
  const auto job = ParseJobConfig(
      "{model: {architecture: {family: gpt_oss, layers: 3, fields: {window: \"16\", "
      "swiglu_limit: \"2.5\", hidden: \"8\"}}}}");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->model.architecture->fields,
            (GivenFields{{"layers", 3}, {"window", 16}, {"swiglu_limit", 2.5}, {"hidden", 8}}));
}

// Anybody may send any map.
TEST(ParseJobConfig, TheMappingIsBounded) {
  const auto parsed = [](const std::string& fields) {
    return ParseJobConfig("{model: {overrides: {fields: {" + fields + "}}}}").status();
  };
  std::string many, name(64, 'x');
  for (int i = 0; i < 33; ++i) absl::StrAppend(&many, "f", i, ": 1, ");
  EXPECT_THAT(std::string(parsed(many).message()),
              HasSubstr("model.overrides.fields: wanted at most 32 fields, found 33; nearest 32"));
  EXPECT_THAT(std::string(parsed(name + ": 1").message()), HasSubstr("unknown field"));
  EXPECT_THAT(std::string(parsed(name + "x: 1").message()),
              HasSubstr("wanted a name of at most 64 bytes, found 65"));
}

TEST(ParseJobConfig, AbsentNullAndZeroTakeTheDefaults) {
  const auto job = ParseJobConfig(
      "{name: a, devices: 0, parallelism: {tensor: 0}, validation: {every_steps: 1}, checkpoint: "
      "null,"
      " precision: PRECISION_UNSPECIFIED}");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->devices, 1);
  EXPECT_EQ(job->parallelism.tensor, 1);
  EXPECT_EQ(job->validation->batches, 1);
  EXPECT_FALSE(job->checkpoint.has_value());
  EXPECT_EQ(job->precision, PrecisionName::kBF16);
  EXPECT_TRUE(job->deterministic);
  EXPECT_EQ(job->max_restarts, 3);
  EXPECT_EQ(job->optimizer.clip_norm, 1.0);
  EXPECT_TRUE(job->data.source() == nullptr);
}

// Where a message can tell 0 from nothing, 0 is a value.
TEST(ParseJobConfig, AZeroThatIsSaidIsAZero) {
  const auto job = ParseJobConfig("{max_restarts: 0, optimizer: {clip_norm: 0}}");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->max_restarts, 0);
  EXPECT_EQ(job->optimizer.clip_norm, 0);
}

// Each is exact, also where a double is not.
TEST(ParseJobConfig, WholeNumbersMayHaveAPointOrAnExponent) {
  const std::pair<const char*, uint64_t> seeds[] = {{"1e3", 1000},
                                                    {"1E+3", 1000},
                                                    {"+12.50e1", 125},
                                                    {"120e-1", 12},
                                                    {"0.0", 0},
                                                    {"-0", 0},
                                                    {"007", 7},
                                                    {"1e16", 10'000'000'000'000'000},
                                                    {"9007199254740993.0", 9'007'199'254'740'993},
                                                    {"1.8446744073709551615e19", UINT64_MAX},
                                                    {"0000000000000000000000000001.00", 1}};
  for (const auto& [text, seed] : seeds) {
    const auto job = ParseJobConfig(absl::StrCat("seed: ", text));
    ASSERT_TRUE(job.ok()) << text << ": " << job.status();
    EXPECT_EQ(job->seed, seed) << text;
  }
  EXPECT_EQ(ParseJobConfig("priority: -1e2")->priority, -100);
}

// Neither an exponent nor a leading or trailing 0 makes a 0 something else.
TEST(ParseJobConfig, ZeroAndTheSmallestNumberAreNumbers) {
  for (const char* zero : {"0", "0.0", "+0", "00.000", "0e-400", "0E9"}) {
    const auto job = ParseJobConfig(absl::StrCat("optimizer: {clip_norm: ", zero, "}"));
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->optimizer.clip_norm, 0);
    EXPECT_FALSE(std::signbit(job->optimizer.clip_norm));
  }
  const auto job = ParseJobConfig("optimizer: {clip_norm: 1.2e-38}");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(std::isnormal(float(job->optimizer.clip_norm)));
}

TEST(Parallelism, AScheduleThatAlwaysHasSoManyChunksNeedNotBeTold) {
  const auto chunks = [](const std::string& parallelism) {
    return ParseJobConfig("parallelism: {" + parallelism + "}")->parallelism.virtual_pipeline;
  };
  EXPECT_EQ(chunks("schedule: V_HALF, pipeline: 2"), 2);
  EXPECT_EQ(chunks("schedule: V_HALF, pipeline: 2, virtual_pipeline: 0"), 2);
  EXPECT_EQ(chunks("schedule: V_HALF"), 1);  // One stage, which runs as without.
  // What is said stays, for the checks.
  EXPECT_EQ(chunks("virtual_pipeline: 1, pipeline: 2, schedule: V_HALF"), 1);
  EXPECT_EQ(chunks("virtual_pipeline: 3, pipeline: 2, schedule: ZERO_BUBBLE"), 3);
  EXPECT_EQ(chunks("pipeline: 2, schedule: INTERLEAVED_ONE_F_ONE_B"), 1);  // Any number, so none.
  EXPECT_EQ(chunks("pipeline: 2"), 1);
}

// Not every schedule has a value of the wire's enum.
TEST(Parallelism, AScheduleIsTakenByItsNameToo) {
  const auto schedule = [](const std::string& parallelism) {
    return ParseJobConfig("parallelism: {" + parallelism + "}")->parallelism.schedule;
  };
  for (const ScheduleKind& kind : AllSchedules()) {
    EXPECT_EQ(schedule(absl::StrCat("schedule_name: ", kind.name)), &kind);
    EXPECT_EQ(schedule(absl::StrCat("schedule: ", kind.name)), &kind);
  }
  EXPECT_EQ(schedule("schedule: PIPELINE_SCHEDULE_UNSPECIFIED, schedule_name: GPIPE"),
            FindSchedule("GPIPE"));
  EXPECT_EQ(schedule("schedule: GPIPE, schedule_name: GPIPE"), FindSchedule("GPIPE"));
  for (const char* nothing : {"null", "''"}) {
    EXPECT_EQ(schedule(absl::StrCat("schedule_name: ", nothing)), nullptr);
    EXPECT_EQ(schedule(absl::StrCat("schedule: V_MIN, schedule_name: ", nothing)),
              FindSchedule("V_MIN"));
  }
}

struct BadText {
  const char* text;
  const char* field;
  const char* description;  // A part of it.
};
class BadTexts : public ::testing::TestWithParam<BadText> {};

TEST_P(BadTexts, NameTheFieldAndTheNearestLegal) {
  const auto job = ParseJobConfig(GetParam().text);
  ASSERT_FALSE(job.ok()) << GetParam().text;
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  const auto list = Violations::FromStatus(job.status());
  ASSERT_EQ(list.size(), 1u) << job.status();
  EXPECT_EQ(list[0].field, GetParam().field);
  EXPECT_THAT(list[0].Description(), HasSubstr(GetParam().description));
}
INSTANTIATE_TEST_SUITE_P(
    Kinds, BadTexts,
    ::testing::Values(
        BadText{"parallelism: {schedule: V_MINI}", "parallelism.schedule",
                ", found \"V_MINI\"; nearest V_MIN"},
        BadText{"parallelism: {schedule_name: V_MINI}", "parallelism.schedule",
                ", found \"V_MINI\"; nearest V_MIN"},
        BadText{"parallelism: {schedule_name: [1]}", "parallelism.schedule", ", found a list"},
        BadText{"parallelism: {schedule: GPIPE, schedule_name: V_MIN}", "parallelism.schedule",
                "wanted the same as in schedule_name, or only one of them, found GPIPE and V_MIN"},
        BadText{"precision_name: BF16", "precision_name", "unknown field"},
        BadText{"nam: a", "nam", "did you mean 'name'?"},
        BadText{"\n\nbatch:\n  globl: 3", "batch.globl", "unknown field; did you mean 'global'?"},
        BadText{"colour: a", "colour", "known here: name, model,"},
        BadText{"model: {overrides: {hiden: 3}}", "model.overrides.hiden", "'hidden'"},
        BadText{"model: {preset: gpt-oss-20b, overrides: {windw: 3}}", "model.overrides.windw",
                "did you mean 'window'?"},
        BadText{"model: {preset: gpt-oss-20b, overrides: {window: some}}", "model.overrides.window",
                "wanted a whole number, found \"some\""},
        BadText{"model: {preset: llama3-8b, overrides: {window: 3}}", "model.overrides.window",
                "wanted none, since family llama has no window, found some"},
        BadText{"model: {preset: gpt-oss-20b, overrides: {ffn: 3}}", "model.overrides.ffn",
                "wanted none, since family gpt_oss has no ffn, found some"},
        BadText{"model: {overrides: {fields: {windw: 3}}}", "model.overrides.windw", "'window'"},
        BadText{"model: {overrides: {fields: [window]}}", "model.overrides.fields",
                "wanted a mapping, found a list"},
        BadText{"model: {overrides: {fields: {window: [3]}}}", "model.overrides.fields.window",
                "wanted a single value, found a list"},
        BadText{"model: {overrides: {window: 3, fields: {window: 3}}}",
                "model.overrides.fields.window",
                "wanted the field once, here or as model.overrides.window, found both"},
        BadText{"optimizer: {adamw: {lr: 1}}", "optimizer.adamw.lr", "learning_rate"},
        BadText{"optimizer: {adam: {}}", "optimizer.adam", "did you mean 'adamw'?"},
        BadText{"optimizer: {lion: {epsilon: 1e-8}}", "optimizer.lion.epsilon", "unknown field"},
        BadText{"optimizer: {lion: {state: COMPACT}}", "optimizer.lion.state", "unknown field"},
        BadText{"optimizer: {adamw: {state: BF16}}", "optimizer.adamw.state",
                "wanted one of F32, COMPACT, found \"BF16\""},
        BadText{"optimizer: {lion: {}, adamw: {}}", "optimizer",
                "wanted one of adamw, lion, muon, found adamw and lion"},
        BadText{"steps: many", "steps", "wanted a whole number, found \"many\""},
        BadText{"steps: 1.5", "steps", "found \"1.5\"; nearest 2"},
        BadText{"steps: 99999999999999999999", "steps", "found \"99999999999999999999\""},
        BadText{"steps: [1]", "steps", "found a list"},
        BadText{"steps: {a: 1}", "steps", "found a mapping"},
        BadText{"steps: 0x10", "steps", "found \"0x10\""},
        BadText{"seed: -1", "seed", "18446744073709551615"},
        BadText{"seed: 18446744073709551616", "seed", "18446744073709551615"},
        BadText{"seed: 1.9e19", "seed", "wanted a whole number from 0 to 18446744073709551615"},
        BadText{"seed: 15e-1", "seed", "found \"15e-1\""},
        BadText{"seed: 1e99999999999999999999", "seed", "wanted a whole number"},
        BadText{"precision: bf16", "precision",
                "one of BF16, F32, F64, FP8_DELAYED, FP8_CURRENT, FP8_BLOCKWISE, FP8_ROWWISE, "
                "found \"bf16\"; nearest BF16"},
        BadText{"precision: tensorwise", "precision",
                ", found \"tensorwise\"; nearest FP8_CURRENT"},
        BadText{"num_layers_at_start_in_bf16: 1", "num_layers_at_start_in_bf16",
                "here it is fp8.first_layers_in_bf16"},
        BadText{"precision: PRECISION_F16", "precision", "; nearest BF16"},
        BadText{"precision: fp8", "precision", "; nearest FP8_CURRENT"},
        BadText{"seed: -1", "seed", "found \"-1\"; nearest 0"},
        BadText{"precision: [BF16]", "precision", "found a list"},
        BadText{"parallelism: {zero: ALL}", "parallelism.zero", "one of NONE, OPTIMIZER, FULL"},
        BadText{"parallelism: {reduction: F16}", "parallelism.reduction", "one of F32, BF16"},
        BadText{"parallelism: {schedule: 1F1B}", "parallelism.schedule", "ONE_F_ONE_B"},
        BadText{"data: {text: {path: a, tokenizer: BPE}}", "data.text.tokenizer", "BYTES"},
        BadText{"data: {text: {path: a}, synthetic: {}}", "data", "found synthetic and text"},
        BadText{"data: {synthetic: {a: 1}}", "data.synthetic.a", "unknown field"},
        BadText{"optimizer: {clip_norm: nan}", "optimizer.clip_norm", "finite number"},
        BadText{"optimizer: {clip_norm: 1e999}", "optimizer.clip_norm", "finite number"},
        BadText{"optimizer: {clip_norm: -0}", "optimizer.clip_norm",
                "wanted 0 without a sign, or a number from 1.2e-38"},
        BadText{"optimizer: {clip_norm: -0.0e5}", "optimizer.clip_norm", "found \"-0.0e5\""},
        BadText{"optimizer: {clip_norm: -1e-40}", "optimizer.clip_norm", "found \"-1e-40\""},
        BadText{"optimizer: {adamw: {epsilon: 1.1e-38}}", "optimizer.adamw.epsilon",
                "or a number from 1.2e-38, as f32 has it, found \"1.1e-38\""},
        BadText{"optimizer: {adamw: {epsilon: 5e-324}}", "optimizer.adamw.epsilon", "1.2e-38"},
        BadText{"optimizer: {adamw: {epsilon: 1e-400}}", "optimizer.adamw.epsilon", "1.2e-38"},
        BadText{"optimizer: {adamw: {epsilon: -1e-400}}", "optimizer.adamw.epsilon", "1.2e-38"},
        BadText{"optimizer: {schedule: {cosine: {}, linear: {}}}", "optimizer.schedule", "and"},
        BadText{"model: {overrides: {tied: yes}}", "model.overrides.tied", "true or false"},
        BadText{"model: llama3-8b", "model", "wanted a mapping, found a single value"},
        BadText{"labels: [a]", "labels", "wanted a mapping"},
        BadText{"labels: {a: {b: c}}", "labels.a", "wanted text"},
        BadText{"name: {a: b}", "name", "wanted text, found a mapping"},
        BadText{"{\"a\\x1fb\": 1}", "\"a\\037b\"", "unknown field"},
        BadText{"[1, 2]", "", "wanted a mapping, found a list"},
        BadText{"a: [1", "", "line 1, column"},
        BadText{"name: a\nbatch: {global: 1\nsteps: 2\n", "", "line 3, column 6: "},
        BadText{"name: a\nname: b", "", "line 2, column 1: the key \"name\" a second time"},
        BadText{"", "", "wanted a YAML document, found none"}));

// One answer names every problem: catches a reader that stops at the first.
TEST(ParseJobConfig, ReportsEveryProblemAtOnce) {
  const auto job = ParseJobConfig("{nam: a, steps: x, batch: {global: y, mcro: 2}, precision: Q}");
  std::vector<std::string> fields;
  for (const auto& v : Violations::FromStatus(job.status())) fields.push_back(v.field);
  EXPECT_THAT(fields, ::testing::UnorderedElementsAre("nam", "steps", "batch.global", "batch.mcro",
                                                      "precision"));
}

constexpr char kTrainer[] = R"(
version: 1
job: {name: tiny, steps: 10}
rank:
  job_id: j-0001
  epoch: 3
  rank: 1
  world: 2
  device_kind: CUDA
  device: 1
  device_uuid: GPU-8a56a4bc-e184-a047-2620-be19fdf913d5
  threads: 2
  processors: [2, 3]
  interface: lo
  roots: [/data, /state]
  socket: /state/s
  exit_report: /state/e
  claimed: true
  recorded_step: 40
  history_after: 43
  recorded_epoch: 2
  memory_bytes: 8000000000
  host_memory_bytes: 9000000000
  peak_flops_by_dtype: {bf16: 1.1e11, f32: 6e10, fp8: 2.2e11}
  patience_seconds: 90
)";

TEST(ParseTrainerConfig, LandsInEveryField) {
  const auto config = ParseTrainerConfig(kTrainer);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->job.name, "tiny");
  ASSERT_TRUE(config->rank.has_value());
  const RankConfig& rank = *config->rank;
  EXPECT_EQ(rank.job_id, "j-0001");
  EXPECT_EQ(rank.epoch, 3);
  EXPECT_EQ(rank.rank, 1);
  EXPECT_EQ(rank.world, 2);
  EXPECT_EQ(rank.device_kind, DeviceKind::kCuda);
  EXPECT_EQ(rank.device, 1);
  EXPECT_EQ(rank.device_uuid, "GPU-8a56a4bc-e184-a047-2620-be19fdf913d5");
  EXPECT_EQ(rank.threads, 2);
  EXPECT_THAT(rank.processors, ElementsAre(2, 3));
  EXPECT_EQ(rank.interface, "lo");
  EXPECT_THAT(rank.roots, ElementsAre("/data", "/state"));
  EXPECT_EQ(rank.socket, "/state/s");
  EXPECT_EQ(rank.exit_report, "/state/e");
  EXPECT_TRUE(rank.claimed);
  EXPECT_EQ(rank.recorded_step, 40);
  EXPECT_EQ(rank.history_after, 43);
  EXPECT_EQ(rank.recorded_epoch, 2);
  EXPECT_EQ(rank.memory_bytes, 8'000'000'000);
  EXPECT_EQ(rank.host_memory_bytes, 9'000'000'000);
  EXPECT_EQ(rank.peak_flops, 1.1e11);
  EXPECT_EQ(rank.patience_seconds, 90);
}

TEST(ParseTrainerConfig, ReadsEveryFieldAsTheWorkerWritesIt) {
  const RankConfig rank = *ParseTrainerConfig(kTrainer)->rank;
  nlohmann::ordered_json config = {{"version", 1}, {"job", {{"name", "tiny"}}}};
  WriteFields(config["rank"], rank);
  EXPECT_THAT(config["rank"], SizeIs(22));
  const auto read = ParseTrainerConfig(config.dump());
  ASSERT_TRUE(read.ok()) << read.status();
  nlohmann::ordered_json again;
  WriteFields(again, *read->rank);
  EXPECT_EQ(again, config["rank"]);
}

TEST(ParseTrainerConfig, RefusesNumbersThatNoRankHas) {
  for (const char* field :
       {"world: 0", "world: 4294967296", "rank: 2", "rank: -1", "threads: 0", "threads: 4097",
        "device: -1", "device: 4294967296", "epoch: -1", "recorded_step: -1", "memory_bytes: 0",
        "host_memory_bytes: 0", "peak_flops: 0", "patience_seconds: 0"}) {
    const std::string name = "rank." + std::string(field).substr(0, std::string(field).find(':'));
    const auto config = ParseTrainerConfig(
        absl::StrCat("{version: 1, job: {name: a}, rank: {job_id: j, ", field, "}}"));
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(name + ": ")) << field;
  }
}

// A daemon that was not upgraded yet has chosen the dtype itself.
TEST(ParseTrainerConfig, TakesWhatADaemonOfTheVersionBeforeWrites) {
  std::string text = kTrainer;
  const size_t peaks = text.find("  peak_flops_by_dtype");
  text.replace(peaks, text.find('\n', peaks) - peaks, "  peak_flops: 7e10");
  const auto config = ParseTrainerConfig(text);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rank->peak_flops, 7e10);
}

// Catches an MFU by the peak of another dtype than the one that the job computes in.
TEST(ParseTrainerConfig, ThePeakIsThatOfTheJobsDtype) {
  const auto peak = [](const std::string& precision) {
    std::string text = kTrainer;
    text.replace(text.find("name: tiny"), 10, "name: tiny, precision: " + precision);
    const auto config = ParseTrainerConfig(text);
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? config->rank->peak_flops : std::nullopt;
  };
  EXPECT_EQ(peak("BF16"), 1.1e11);
  EXPECT_EQ(peak("F32"), 6e10);
  EXPECT_EQ(peak("FP8_DELAYED"), 2.2e11);
  EXPECT_EQ(peak("F64"), std::nullopt) << "this device has no rate in f64";
}

TEST(ParseTrainerConfig, ARankIsOneOfTheCpuUnlessItSaysOtherwise) {
  const auto kind = [](const std::string& rank) {
    return ParseTrainerConfig("{version: 1, job: {name: a}, rank: {job_id: j, device: 2" + rank +
                              "}}");
  };
  EXPECT_EQ(kind("")->rank->device_kind, DeviceKind::kCpu);
  EXPECT_EQ(kind(", device_kind: DEVICE_KIND_CUDA")->rank->device_kind, DeviceKind::kCuda);
  EXPECT_THAT(std::string(kind(", device_kind: TPU").status().message()),
              AllOf(HasSubstr("rank.device_kind"), HasSubstr("CUDA")));
}

TEST(ParseTrainerConfig, IsAloneWithoutARankAndPutsTheJobsPathsUnderJob) {
  EXPECT_FALSE(ParseTrainerConfig("{version: 1, job: {name: a}}")->rank.has_value());
  const auto bad = ParseTrainerConfig("{version: 2, job: {stesp: 1}, rank: {rank: 3, roots: [a]}}");
  EXPECT_THAT(std::string(bad.status().message()),
              AllOf(HasSubstr("version: wanted 1, which this trainer reads, found 2"),
                    HasSubstr("job.stesp: unknown field; did you mean 'steps'?"),
                    HasSubstr("rank.job_id"), HasSubstr("rank.rank"), HasSubstr("rank.roots[0]")));
  EXPECT_THAT(std::string(ParseTrainerConfig("version: 1").status().message()), HasSubstr("job: "));
}

TEST(ParseTrainerConfig, TakesAJobSpecByItself) {
  const auto config = ParseTrainerConfig("{name: a, steps: 3}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->job.name, "a");
  EXPECT_EQ(config->job.steps, 3);
  EXPECT_FALSE(config->rank.has_value());
  EXPECT_THAT(std::string(ParseTrainerConfig("{name: a, stesp: 3}").status().message()),
              HasSubstr("job.stesp: unknown field; did you mean 'steps'?"));
  EXPECT_FALSE(ParseTrainerConfig("[a]").ok());
}

}  // namespace
}  // namespace trainyard
