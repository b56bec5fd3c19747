// Proves that every kind of bad job is refused with the field's path and the nearest legal value,
// all of it in one answer, and that good jobs pass. Each bad job is the good one with one field
// set, so a check that is missing fails here by name.

#include "train/config/validate.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "models/arch/decoder_config.h"
#include "models/arch/registry.h"
#include "tests/train/config/check.h"
#include "train/config/resolve_model.h"
#include "train/data/indexed.h"
#include "train/data/synthetic.h"
#include "train/data/text.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobConfig GoodJob() {
  JobConfig job;
  job.name = "tiny";
  job.model.preset = "llama3-8b";
  job.model.overrides = {"",
                         {{"layers", 2},
                          {"hidden", 64},
                          {"ffn", 128},
                          {"heads", 4},
                          {"kv_heads", 2},
                          {"vocab", 256},
                          {"max_seq", 128}}};
  job.batch = {.global = 12, .micro = 2, .sequence = 64};
  job.data = TextData{"corpus.txt", 0.02};
  job.optimizer.options["learning_rate"] = 1e-3;
  job.optimizer.schedule = {ScheduleShape::kCosine, 5, 0.2};
  job.steps = 100;
  job.validation = ValidationConfig{10, 1};
  job.checkpoint = CheckpointConfig{"runs/tiny", 10, 2};
  job.devices = 3;
  job.labels = {{"team", "a b"}};
  return job;
}

TEST(Validate, GoodJobsPass) {
  JobConfig job = GoodJob();
  EXPECT_THAT(Check(job), IsEmpty()) << Check(job)[0].field << Check(job)[0].Description();
  EXPECT_EQ(DataParallel(job), 3);
  EXPECT_EQ(AccumulationSteps(job), 2);
  job.validation.reset();
  job.checkpoint.reset();
  job.data = SyntheticData{};
  job.optimizer.schedule = {};
  EXPECT_THAT(Check(job), IsEmpty());
  job.data = IndexedData{"/data/p", 0};
  EXPECT_THAT(Check(job), IsEmpty());
  job.validation = ValidationConfig{10, 1};
  job.data = SyntheticData{};
  EXPECT_THAT(Check(job), IsEmpty());
}

struct BadJob {
  const char* what;
  void (*set)(JobConfig& job);
  const char* field;
  const char* description;  // A part of it.
};
void PrintTo(const BadJob& bad, std::ostream* out) { *out << bad.what; }

class BadJobs : public ::testing::TestWithParam<BadJob> {};

TEST_P(BadJobs, NameFieldAndNearestLegalValue) {
  JobConfig job = GoodJob();
  GetParam().set(job);
  const auto list = Check(job);
  ASSERT_EQ(list.size(), 1u) << (list.empty() ? "nothing found"
                                              : list[1].field + list[1].Description());
  EXPECT_EQ(list[0].field, GetParam().field);
  EXPECT_THAT(list[0].Description(), HasSubstr(GetParam().description));
}

#define BAD(what, statement, field, description)                \
  BadJob {                                                      \
    what, [](JobConfig& job) { statement; }, field, description \
  }

INSTANTIATE_TEST_SUITE_P(
    Names, BadJobs,
    ::testing::Values(
        BAD("empty", job.name = "", "name", "found \"\""),
        BAD("upper case", job.name = "My Job!", "name", "found \"My Job!\"; nearest \"my-job\""),
        BAD("ends in dash", job.name = "a-", "name", "nearest \"a\""),
        BAD("long", job.name = std::string(64, 'a'), "name", "at most 63"),
        BAD("slash", job.name = "a/b", "name", "nearest \"a-b\""),
        BAD("only dots", job.name = "...", "name", "found \"...\""),
        BAD("labels", for (int i = 0; i < 33; ++i) job.labels[absl::StrCat("k", i)] = "", "labels",
            "at most 32, found 34"),
        BAD("label key", job.labels["a b"] = "", "labels", "found \"a b\""),
        BAD("empty label key", job.labels[""] = "", "labels", "found \"\""),
        BAD("label value", job.labels["a"] = "b\nc", "labels.a", "one line"),
        BAD("long label", job.labels["a"] = std::string(256, 'x'), "labels.a", "255")));

INSTANTIATE_TEST_SUITE_P(
    Models, BadJobs,
    ::testing::Values(
        BAD("none", job.model = {}, "model.preset", "llama3-8b"),
        BAD("unknown", job.model.preset = "llama3-8", "model.preset", "llama3-8b"),
        BAD("both", job.model.architecture.emplace(), "model", "found both"),
        BAD("overrides of nothing", job.model.preset = "";
            job.model.architecture.emplace(), "model.overrides", "beside architecture"),
        BAD("kv heads", job.model.overrides->fields["kv_heads"] = 3, "model.overrides.kv_heads",
            "3"),
        BAD("zero layers", job.model.overrides->fields["layers"] = 0, "model.overrides.layers",
            "0"),
        BAD("huge layers", job.model.overrides->fields["layers"] = 4000000000,
            "model.overrides.layers", "1024"),
        BAD("family", job.model.overrides->family = "gpt3", "model.overrides.family", "gpt3"),
        BAD("vocabulary", job.model.overrides->fields["vocab"] = 255, "model.overrides.vocab",
            "at least 256 for byte tokens, found 255; nearest 256"),
        BAD("sequence", job.batch.sequence = 129, "batch.sequence",
            "max_seq = 128, found 129; nearest 128")));

INSTANTIATE_TEST_SUITE_P(
    Batches, BadJobs,
    ::testing::Values(
        BAD("does not divide", job.batch.global = 32, "batch.global",
            "multiple of micro x data parallel = 2 x 3 = 6, found 32; nearest 30"),
        BAD("rounds up", job.batch.global = 34, "batch.global", "nearest 36"),
        BAD("too small", job.batch.global = 1, "batch.global", "found 1; nearest 6"),
        BAD("zero global", job.batch.global = 0, "batch.global",
            "wanted 1 to 1000000, found 0; nearest 6"),
        BAD("zero micro", job.batch.micro = 0, "batch.micro", "found 0; nearest 1"),
        BAD("zero sequence", job.batch.sequence = 0, "batch.sequence", "found 0; nearest 1"),
        BAD("huge global", job.batch.global = 4294967295, "batch.global",
            "wanted 1 to 1000000, found 4294967295; nearest 999996"),
        BAD("zero devices", job.devices = 0, "devices", "wanted 1 to 65536, found 0; nearest 1"),
        BAD("huge devices", job.devices = 65537, "devices",
            "wanted 1 to 65536, found 65537; nearest 6"),
        BAD("zero tensor", job.parallelism.tensor = 0, "parallelism.tensor",
            "wanted 1 to 65536, found 0; nearest 1"),
        BAD("devices over axes", job.parallelism.pipeline = 2, "devices",
            "a multiple of tensor x pipeline x context = 1 x 2 x 1 = 2, found 3; nearest 4"),
        BAD("expert", job.parallelism.expert = 2, "parallelism.expert",
            "a divisor of the data-parallel ranks = 3, found 2; nearest 1"),
        BAD("experts of a dense model", job.parallelism.expert = 3, "parallelism.expert",
            "wanted 1, since family llama has no experts, found 3; nearest 1")));

// The good job with another way to divide it; enough devices for one data rank.
ParallelismConfig& Divide(JobConfig& job, const ParallelismConfig& parallelism) {
  job.parallelism = parallelism;
  job.devices = parallelism.tensor * parallelism.pipeline * parallelism.context;
  return job.parallelism;
}

// The good job with 12 experts.
JobConfig& WithExperts(JobConfig& job, const ParallelismConfig& parallelism, int64_t devices) {
  job.model.preset = "qwen3-30b-a3b";
  GivenFields& fields = job.model.overrides->fields;
  fields["moe.experts"] = 12, fields["moe.top_k"] = 2, fields["moe.expert_ffn"] = 16;
  job.parallelism = parallelism;
  job.devices = devices;
  return job;
}

TEST(Validate, ExpertsThatDividePass) {
  for (const ParallelismConfig& parallelism :
       {ParallelismConfig{.expert = 1},
        {.expert = 6},
        {.tensor = 2, .expert = 3},
        {.tensor = 2, .context = 2, .expert = 3, .expert_split = ExpertSplit::kExpertTensorContext},
        {.tensor = 4, .expert = 3, .expert_split = ExpertSplit::kExpert}}) {
    JobConfig job = GoodJob();
    WithExperts(job, parallelism, 6 * parallelism.tensor * parallelism.context);
    EXPECT_THAT(Check(job), IsEmpty()) << Check(job)[0].field << Check(job)[0].Description();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Experts, BadJobs,
    ::testing::Values(
        BAD("expert over experts", (WithExperts(job, {.expert = 8}, 8), job.batch = {16, 1, 64}),
            "parallelism.expert",
            "a number of ranks (expert x 1 by expert_split EXPERT_TENSOR) that divides experts = "
            "12, found 8; nearest 4"),
        BAD("expert over data", WithExperts(job, {.expert = 4}, 6), "parallelism.expert",
            "a divisor of the data-parallel ranks = 6, found 4; nearest 3"),
        BAD("tensor over experts",
            (WithExperts(job, {.tensor = 4}, 4), job.model.overrides->fields["moe.experts"] = 6),
            "parallelism.expert_split",
            "(expert x 4 by expert_split EXPERT_TENSOR) that divides experts = 6, found 4; nearest "
            "EXPERT"),
        BAD("zero expert", job.parallelism.expert = 0, "parallelism.expert",
            "wanted 1 to 65536, found 0; nearest 1"),
        BAD("a width that tensor does not divide",
            (WithExperts(job, {.tensor = 2}, 2),
             job.model.overrides->fields["moe.shared_experts"] = 1,
             job.model.overrides->fields["moe.shared_ffn"] = 5),
            "parallelism.tensor", "shared_ffn = 5")));

// The good job with so many tokens in a micro-batch on its only rank, each of which chooses 1024
// experts; 2^20 tokens are too many.
JobConfig& WithChoices(JobConfig& job, const BatchConfig& batch) {
  WithExperts(job, {}, 1);
  GivenFields& fields = job.model.overrides->fields;
  fields["moe.experts"] = 1024, fields["moe.top_k"] = 1024;
  job.model.overrides->fields["max_seq"] = 1 << 20;
  job.batch = batch;
  return job;
}

INSTANTIATE_TEST_SUITE_P(
    ExpertSlots, BadJobs,
    ::testing::Values(
        BAD("choices of too many sequences", WithChoices(job, {48, 16, 1 << 16}), "batch.micro",
            "wanted at most 1073741823 choices of experts on a rank at once, micro x sequence / "
            "(context x tensor) x top_k = 16 x 65536 / (1 x 1) x 1024 = 1073741824, found 16; "
            "nearest 12"),
        BAD("choices of one sequence", WithChoices(job, {1, 1, 1 << 20}), "batch.sequence",
            "1 x 1048576 / (1 x 1) x 1024 = 1073741824, found 1048576; nearest 1048575"),
        BAD("choices on context ranks",
            (WithChoices(job, {2, 2, 1 << 20}), job.devices = job.parallelism.context = 2),
            "batch.micro", "found 2; nearest 1"),
        BAD("choices that tensor divides",
            (WithChoices(job, {2, 2, 1 << 20}), job.devices = job.parallelism.tensor = 2,
             job.parallelism.expert_split = ExpertSplit::kExpert),
            "batch.micro", "found 2; nearest 1")));

TEST(Validate, ChoicesOfExpertsBelowTheLimitPass) {
  for (const int64_t tensor : {1, 2}) {
    JobConfig job = GoodJob();
    WithChoices(job, {16, 8 * tensor, 1 << 16});
    job.devices = job.parallelism.tensor = tensor;
    EXPECT_THAT(Check(job), IsEmpty()) << Check(job)[0].field << Check(job)[0].Description();
  }
}

TEST(Validate, LayoutsThatDividePass) {
  for (const ParallelismConfig& parallelism :
       {ParallelismConfig{.tensor = 2},
        {.tensor = 4},
        {.pipeline = 4},
        {.context = 4},
        {.pipeline = 2, .virtual_pipeline = 2},
        {.pipeline = 2, .schedule = FindSchedule("ZERO_BUBBLE")},
        {.pipeline = 2, .virtual_pipeline = 2, .schedule = FindSchedule("V_HALF")},
        {.schedule = FindSchedule("V_HALF")},
        {.tensor = 2, .pipeline = 2, .context = 2, .zero = Zero::kNone},
        {.tensor = 2, .pipeline = 2, .zero = Zero::kFull}}) {
    JobConfig job = GoodJob();
    Divide(job, parallelism);
    EXPECT_THAT(Check(job), IsEmpty()) << Check(job)[0].field << Check(job)[0].Description();
    job.devices *= 3;
    EXPECT_THAT(Check(job), IsEmpty()) << Check(job)[0].field << Check(job)[0].Description();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, BadJobs,
    ::testing::Values(
        BAD("tensor over heads", Divide(job, {.tensor = 3}), "parallelism.tensor",
            "divides ffn = 128, heads = 4, vocab = 256 (or vocab_multiple = 3, found 1) and the "
            "128 "
            "tokens of a micro-batch on a rank, "
            "and divides kv_heads = 2 or is a "
            "multiple "
            "of it, found 3; nearest 1"),
        BAD("tensor where another one asks for other devices, too",
            (Divide(job, {.tensor = 3}), job.batch.global = 4), "parallelism.tensor",
            "found 3; nearest 2"),
        BAD("tensor over tokens", (Divide(job, {.tensor = 2}), job.batch = {12, 1, 1}),
            "parallelism.tensor", "the 1 tokens of a micro-batch on a rank"),
        BAD("nothing else of an illegal model",
            (Divide(job, {.tensor = 3}), job.model.overrides->fields["heads"] = 0),
            "model.overrides.heads", "found 0"),
        BAD("context over a short model",
            (Divide(job, {.context = 3}), job.model.overrides->fields["max_seq"] = 64),
            "batch.sequence", "found 64; nearest 60"),
        BAD("devices at their limit",
            (job.parallelism.tensor = 300, job.parallelism.pipeline = 150, job.devices = 65536),
            "devices", "found 65536; nearest 45000"),
        BAD("too many stages", Divide(job, {.pipeline = 5}), "parallelism.pipeline",
            "wanted at most 4 parts of 2 layers, embedding and head, found 5 x 1; nearest 4"),
        BAD("too many chunks", Divide(job, {.pipeline = 2, .virtual_pipeline = 3}),
            "parallelism.virtual_pipeline", "found 2 x 3; nearest 2"),
        BAD("chunks of one stage", Divide(job, {.virtual_pipeline = 2}),
            "parallelism.virtual_pipeline", "wanted 1 where pipeline is 1, found 2; nearest 1"),
        BAD("schedule of one chunk",
            (Divide(job, {.pipeline = 2, .virtual_pipeline = 2}).schedule =
                 FindSchedule("ZERO_BUBBLE")),
            "parallelism.virtual_pipeline", "wanted 1 for ZERO_BUBBLE, found 2; nearest 1"),
        BAD("schedule of several chunks",
            (Divide(job, {.pipeline = 2}).schedule = FindSchedule("INTERLEAVED_ONE_F_ONE_B")),
            "parallelism.virtual_pipeline",
            "wanted at least 2 for INTERLEAVED_ONE_F_ONE_B, found 1; nearest 2"),
        BAD("schedule of two chunks",
            (Divide(job, {.pipeline = 2}).schedule = FindSchedule("V_HALF")),
            "parallelism.virtual_pipeline", "wanted 2 for V_HALF, found 1; nearest 2"),
        BAD("too many stages for two chunks",
            (Divide(job, {.pipeline = 3}).schedule = FindSchedule("V_HALF")),
            "parallelism.pipeline", "found 3 x 2; nearest 1"),
        BAD("schedule of several stages",
            job.parallelism.schedule = FindSchedule("INTERLEAVED_ONE_F_ONE_B"),
            "parallelism.schedule",
            "wanted another where pipeline is 1, found INTERLEAVED_ONE_F_ONE_B; nearest "
            "ONE_F_ONE_B"),
        BAD("rounds of micro-batches",
            (Divide(job, {.pipeline = 2, .virtual_pipeline = 2}), job.batch.global = 6),
            "batch.global",
            "a multiple of micro x data parallel x pipeline = 2 x 1 x 2 = 4 for "
            "INTERLEAVED_ONE_F_ONE_B, found 6; nearest 8"),
        BAD("more ranks than there may be devices",
            (job.parallelism = {.tensor = 300, .pipeline = 300}, job.devices = 65536),
            "parallelism.tensor",
            "at most 65536 for tensor x pipeline x context = 300 x 300 x 1 = 90000, found 300; "
            "nearest 218"),
        BAD("context over every sequence", Divide(job, {.context = 100}), "parallelism.context",
            "at most half of the longest sequence, 128, found 100; nearest 50"),
        BAD("more blocks again than there are", job.recompute.blocks = 3, "recompute.blocks",
            "wanted 0 to 2 (the layers on a pipeline stage), found 3; nearest 2"),
        BAD("more blocks again than on a stage",
            (Divide(job, {.pipeline = 2}), job.recompute.blocks = 2), "recompute.blocks",
            "found 2; nearest 1"),
        BAD("fewer blocks again than none", job.recompute.blocks = -1, "recompute.blocks",
            "found -1; nearest 0"),
        BAD("context over the sequence", Divide(job, {.context = 3}), "batch.sequence",
            "a multiple of 2 x context = 6, found 64; nearest 66")));

INSTANTIATE_TEST_SUITE_P(
    Data, BadJobs,
    ::testing::Values(
        BAD("none", job.data = {}, "data", "wanted one of synthetic"),
        BAD("no path", job.data = (TextData{"", 0.1}), "data.text.path", "found none"),
        BAD("dots", job.data = (TextData{"a/../b", 0.1}), "data.text.path", "without \"..\""),
        BAD("leading dots", job.data = (TextData{"../b", 0.1}), "data.text.path", "without \"..\""),
        BAD("tilde", job.data = (TextData{"~/b", 0.1}), "data.text.path", "not expanded"),
        BAD("control", job.data = (TextData{"a\nb", 0.1}), "data.text.path", "control characters"),
        BAD("long", job.data = (TextData{std::string(1025, 'a'), 0.1}), "data.text.path", "1024"),
        BAD("fraction", job.data = (TextData{"a", 0.5}), "data.text.validation_fraction",
            "0 <= x < 0.5, found 0.5; nearest 0.49"),
        BAD("negative fraction", job.data = (TextData{"a", -0.1}), "data.text.validation_fraction",
            "nearest 0"),
        BAD("prefix", job.data = (IndexedData{"", 0.1}), "data.indexed.prefix", "found none"),
        BAD("indexed fraction", job.data = (IndexedData{"a", 1}),
            "data.indexed.validation_fraction", "found 1"),
        BAD("nothing to validate on", job.data = (TextData{"a", 0}), "validation",
            "wanted a validation_fraction of the data above 0, found 0")));

ProfileConfig& WithNcclTrace(JobConfig& job) {
  return job.profile.emplace(
      ProfileConfig{.directory = "t", .start_step = 1, .ranks = {}, .nccl_trace = true});
}

TEST(Validate, NcclTracesBesideTheCheckpointsPass) {
  JobConfig job = GoodJob();
  for (const std::string directory : {"t", "runs/traces", "/abs/runs", "run"}) {
    WithNcclTrace(job).directory = directory;
    job.checkpoint->directory = "runs/a";
    EXPECT_THAT(Check(job), IsEmpty()) << directory;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Training, BadJobs,
    ::testing::Values(
        BAD("no steps", job.steps = 0;
            job.optimizer.schedule = {}, "steps", "wanted 1 to 1000000000, found 0"),
        BAD("negative steps", job.steps = -1;
            job.optimizer.schedule = {}, "steps", "wanted 1 to 1000000000, found -1; nearest 1"),
        BAD("steps", job.steps = 1000000001, "steps", "nearest 1000000000"),
        BAD("no rate", job.optimizer.options["learning_rate"] = 0, "optimizer.adamw.learning_rate",
            "0 < x <= 10"),
        BAD("rate", job.optimizer.options["learning_rate"] = 11, "optimizer.adamw.learning_rate",
            "found 11"),
        BAD("beta1", job.optimizer.options["beta1"] = 1, "optimizer.adamw.beta1", "0 <= x < 1"),
        BAD("beta1 below 0", job.optimizer.options["beta1"] = -0.1, "optimizer.adamw.beta1",
            "found -0.1"),
        BAD("beta2", job.optimizer.options["beta2"] = -0.1, "optimizer.adamw.beta2", "found -0.1"),
        BAD("beta2 of one", job.optimizer.options["beta2"] = 1, "optimizer.adamw.beta2",
            "0 <= x < 1, found 1"),
        BAD("large epsilon", job.optimizer.options["epsilon"] = 1.01, "optimizer.adamw.epsilon",
            "0 < x <= 1, found 1.01"),
        BAD("large decay", job.optimizer.options["weight_decay"] = 10.1,
            "optimizer.adamw.weight_decay", "0 <= x <= 10, found 10.1; nearest 10"),
        BAD("state in halves of f32", job.precision = PrecisionName::kF32;
            job.optimizer.options["state"] = 1, "optimizer.adamw.state",
            "wanted F32 for F32, in which forward and backward read no weights in bf16, found "
            "COMPACT; nearest F32"),
        BAD("Lion without a rate", job.optimizer.options = OptimizerOptions(LionOptimizer()),
            "optimizer.lion.learning_rate", "0 < x <= 10, found 0"),
        BAD("large clip", job.optimizer.clip_norm = 1.1e9, "optimizer.clip_norm", "<= x <= 1e9"),
        BAD("negative ratio", job.optimizer.schedule.min_ratio = -0.1,
            "optimizer.schedule.cosine.min_ratio", "0 <= x <= 1, found -0.1"),
        BAD("epsilon", job.optimizer.options["epsilon"] = 0, "optimizer.adamw.epsilon", "0 < x"),
        BAD("decay", job.optimizer.options["weight_decay"] = -1, "optimizer.adamw.weight_decay",
            "found -1"),
        BAD("clip", job.optimizer.clip_norm = -1, "optimizer.clip_norm", "no clipping"),
        BAD("warm-up", job.optimizer.schedule.warmup_steps = 101,
            "optimizer.schedule.cosine.warmup_steps",
            "at most steps = 100, found 101; nearest 100"),
        BAD("negative warm-up", job.optimizer.schedule.warmup_steps = -1,
            "optimizer.schedule.cosine.warmup_steps", "found -1; nearest 0"),
        BAD("ratio", job.optimizer.schedule.min_ratio = 1.5, "optimizer.schedule.cosine.min_ratio",
            "0 <= x <= 1"),
        BAD("constant ratio", job.optimizer.schedule.shape = ScheduleShape::kConstant,
            "optimizer.schedule.constant.min_ratio", "none for a constant rate"),
        BAD("no decay", (job.optimizer.schedule = {ScheduleShape::kWsd, 5, 0.2}),
            "optimizer.schedule.wsd.decay_steps", "wanted 1 to 1000000000, found 0; nearest 1"),
        BAD("long decay", (job.optimizer.schedule = {ScheduleShape::kWsd, 5, 0.2, 96}),
            "optimizer.schedule.wsd.decay_steps",
            "wanted at most steps - warmup_steps = 95, found 96; nearest 95"),
        BAD("decay without a step left",
            (job.optimizer.schedule = {ScheduleShape::kWsd, 100, 0.2, 1}),
            "optimizer.schedule.wsd.decay_steps",
            "wanted at most steps - warmup_steps = 0, found 1"),
        BAD("ratio of a decay", (job.optimizer.schedule = {ScheduleShape::kWsd, 5, 1.5, 10}),
            "optimizer.schedule.wsd.min_ratio", "0 <= x <= 1, found 1.5"),
        BAD("validation", job.validation->every_steps = 0, "validation.every_steps",
            "found 0; nearest 1"),
        BAD("rare validation", job.validation->every_steps = 1000000001, "validation.every_steps",
            "wanted 1 to 1000000000, found 1000000001"),
        BAD("no batches", job.validation->batches = 0, "validation.batches", "found 0; nearest 1"),
        BAD("batches", job.validation->batches = 100001, "validation.batches", "nearest 100000"),
        BAD("directory", job.checkpoint->directory = "", "checkpoint.directory", "found none"),
        BAD("dots", job.checkpoint->directory = "/a/..", "checkpoint.directory", "\"..\""),
        BAD("keep none", job.checkpoint->keep = 0, "checkpoint.keep", "found 0; nearest 1"),
        BAD("best of none", (job.validation = {}, job.checkpoint->keep_best = 1),
            "checkpoint.keep_best", "found 1; nearest 0"),
        BAD("keep", job.checkpoint->keep = 1001, "checkpoint.keep", "wanted 1 to 1000, found 1001"),
        BAD("negative every", job.checkpoint->every_steps = -1, "checkpoint.every_steps",
            "found -1; nearest 0"),
        BAD("every", job.checkpoint->every_steps = 1000000001, "checkpoint.every_steps",
            "1000000000"),
        BAD("nowhere to trace", job.profile = (ProfileConfig{.start_step = 1, .ranks = {}}),
            "profile.directory", "found none"),
        BAD("tracing before the first step",
            job.profile = (ProfileConfig{.directory = "t", .ranks = {}}), "profile.start_step",
            "wanted 1 to 100, found 0; nearest 1"),
        BAD("tracing after the last step",
            job.profile = (ProfileConfig{.directory = "t", .start_step = 101, .ranks = {}}),
            "profile.start_step", "wanted 1 to 100, found 101; nearest 100"),
        BAD("tracing no step",
            job.profile = (ProfileConfig{
                .directory = "t", .start_step = 1, .steps = 0, .ranks = {}}),
            "profile.steps", "found 0; nearest 1"),
        BAD("tracing all of it",
            job.profile = (ProfileConfig{
                .directory = "t", .start_step = 1, .steps = 21, .ranks = {}}),
            "profile.steps", "wanted 1 to 20, found 21; nearest 20"),
        BAD("tracing a rank that is not there",
            job.profile = (ProfileConfig{.directory = "t", .start_step = 1, .ranks = {0, 4}}),
            "profile.ranks[1]", "wanted 0 to 2, found 4; nearest 2"),
        BAD("tracing a rank twice",
            job.profile = (ProfileConfig{.directory = "t", .start_step = 1, .ranks = {1, 0, 1}}),
            "profile.ranks[2]", "wanted every rank once, found 1 again"),
        BAD("NCCL of one rank", (WithNcclTrace(job), job.devices = 1), "profile.nccl_trace",
            "wanted false for one device, which has no use for NCCL, found true; nearest false"),
        BAD("NCCL of CPU ranks", (WithNcclTrace(job), job.precision = PrecisionName::kF64),
            "profile.nccl_trace", "wanted false for F64"),
        BAD("a log where a checkpoint directory is to be claimed",
            (WithNcclTrace(job).directory = "./" + job.checkpoint->directory + "//traces"),
            "profile.directory", "wanted one outside checkpoint.directory, found"),
        BAD("traces among checkpoints",
            (WithNcclTrace(job) = ProfileConfig{.directory = job.checkpoint->directory,
                                                .start_step = 1,
                                                .ranks = {}}),
            "profile.directory", "wanted one outside checkpoint.directory, found"),
        BAD("priority", job.priority = -1001, "priority",
            "wanted -1000 to 1000, found -1001; nearest -1000"),
        BAD("high priority", job.priority = 1001, "priority", "found 1001; nearest 1000"),
        BAD("init from", job.init_from = "a/../b", "init_from", "\"..\""),
        BAD("subset of nothing", job.init_from_subset = true, "init_from_subset", "init_from"),
        BAD("negative restarts", job.max_restarts = -1, "max_restarts", "found -1; nearest 0"),
        BAD("restarts", job.max_restarts = 101, "max_restarts", "nearest 100")));

TEST(Validate, NumbersAtTheirLimitsPass) {
  JobConfig low = GoodJob();
  low.optimizer = {.options = {{"learning_rate", 1e-30},
                               {"beta1", 0},
                               {"beta2", 0},
                               {"epsilon", 1e-30},
                               {"weight_decay", 0}},
                   .schedule = {ScheduleShape::kCosine, 0, 0},
                   .clip_norm = 0};
  low.steps = 1;
  low.validation = ValidationConfig{.every_steps = 1, .batches = 1};
  low.checkpoint->every_steps = 0, low.checkpoint->keep = 1;
  low.profile = ProfileConfig{.directory = "t", .start_step = 1, .steps = 1, .ranks = {0}};
  low.priority = -1000, low.max_restarts = 0;
  JobConfig high = GoodJob();
  high.optimizer = {.options = {{"learning_rate", 10},
                                {"beta1", 0.9999999},
                                {"beta2", 0.9999999},
                                {"epsilon", 1},
                                {"weight_decay", 10}},
                    .schedule = {ScheduleShape::kCosine, 1000000000, 1},
                    .clip_norm = 1e9};
  high.steps = 1000000000;
  high.validation = ValidationConfig{.every_steps = 1000000000, .batches = 100000};
  high.checkpoint->every_steps = 1000000000, high.checkpoint->keep = 1000;
  high.profile =
      ProfileConfig{.directory = "t", .start_step = 1000000000, .steps = 20, .ranks = {2}};
  high.priority = 1000, high.max_restarts = 100;
  for (const JobConfig& job : {low, high}) {
    EXPECT_THAT(Check(job), IsEmpty()) << Check(job)[0].field << Check(job)[0].Description();
  }
}

// Catches validation that stops at the first problem.
TEST(Validate, ReportsEverythingAtOnce) {
  JobConfig job;
  job.devices = 0;
  std::vector<std::string> fields;
  for (const auto& v : Check(job)) fields.push_back(v.field);
  EXPECT_THAT(fields, ::testing::UnorderedElementsAre(
                          "name", "model.preset", "devices", "batch.global", "batch.micro",
                          "batch.sequence", "data", "optimizer.adamw.learning_rate", "steps"));
}

constexpr char kGoodText[] =
    "{name: a, model: {preset: llama3-8b, overrides: {layers: 1, vocab: 256}}, data: {synthetic: "
    "{}}, steps: 3, "
    "batch: {global: 4, micro: 2, sequence: 8}, optimizer: {adamw: {learning_rate: 1e-3}}";

// What cannot be read is reported once, as that, and not as the default that stands in for it.
TEST(ParseAndValidateJob, MergesBothListsWithoutRepetition) {
  EXPECT_TRUE(ParseAndValidateJob(absl::StrCat(kGoodText, "}")).ok());
  const auto job = ParseAndValidateJob(
      "{nam: a, model: {preset: llama3-8b}, data: {synthetic: {}}, steps: many, batch: {global: 4, "
      "micro: 0, "
      "sequence: 8}, optimizer: {adamw: {learning_rate: 1e-3}}}");
  std::vector<std::string> fields;
  for (const auto& v : Violations::FromStatus(job.status())) fields.push_back(v.field);
  EXPECT_THAT(fields, ::testing::UnorderedElementsAre("nam", "steps", "name", "batch.micro"));
  EXPECT_EQ(Violations::FromStatus(ParseAndValidateJob("a: [").status()).size(), 1u);
}

std::string TrainerErrors(const std::string& text) {
  Violations violations;
  ParseAndValidateTrainer(text, violations);
  return std::string(violations.ToStatus().message());
}

TEST(ParseAndValidateTrainer, WantsAsManyRanksAsDevices) {
  const std::string job = absl::StrCat("{version: 1, job: ", kGoodText);
  EXPECT_EQ(TrainerErrors(job + "}}"), "");
  EXPECT_EQ(TrainerErrors(job + ", devices: 2}, rank: {job_id: j, world: 2, rank: 1}}"), "");
  EXPECT_EQ(TrainerErrors(job + ", devices: 2}}"),
            "job.devices: wanted 1 for a trainer that runs alone, found 2; nearest 1");
  EXPECT_EQ(TrainerErrors(job + "}, rank: {job_id: j, world: 2, rank: 1}}"),
            "rank.world: wanted job.devices = 1, found 2");
  EXPECT_THAT(TrainerErrors("{version: 1, job: {steps: 0}}"), HasSubstr("job.steps: "));
}

TEST(ResolveModel, OverridesResetTheHeadDimUnlessGiven) {
  ModelChoice choice = GoodJob().model;
  const auto resolved = [](const ModelChoice& of) { return ResolveModel(of)->As<DecoderConfig>(); };
  EXPECT_EQ(resolved(choice).head_dim, 16);
  EXPECT_EQ(resolved(choice).layers, 2);
  choice.overrides->fields["head_dim"] = 32;
  EXPECT_EQ(resolved(choice).head_dim, 32);
  EXPECT_EQ(resolved({.preset = "llama3-8b", .overrides = {}, .architecture = {}}).hidden, 4096);
  for (const std::string& name : PresetNames()) {
    EXPECT_TRUE(ResolveModel(ModelChoice{.preset = name, .overrides = {}, .architecture = {}}).ok())
        << name;
  }
}

// Bug it must catch: specs that override a width get another model than they got before.
TEST(ResolveModel, AWidthMakesTheHeadDimTheQuotientEvenWhereThePresetsIsNot) {
  ModelChoice choice = {.preset = "qwen3-30b-a3b", .overrides = {}, .architecture = {}};
  EXPECT_EQ(FactsOf(*ResolveModel(choice)).sizes.head_dim, 128);
  choice.overrides.emplace().fields["hidden"] = 1024;
  EXPECT_EQ(FactsOf(*ResolveModel(choice)).sizes.head_dim, 32);
}

TEST(ResolveModel, InlineArchitecturesNameWhatIsMissing) {
  ModelChoice choice;
  choice.architecture.emplace();
  choice.architecture->family = "llama";
  choice.architecture->fields["layers"] = 2;
  const auto model = ResolveModel(choice);
  ASSERT_FALSE(model.ok());
  for (const auto& v : Violations::FromStatus(model.status())) {
    EXPECT_THAT(v.field, ::testing::StartsWith("model.architecture."));
    EXPECT_NE(v.field, "model.architecture.layers");
  }
  choice.architecture->fields["hidden"] = 64;
  choice.architecture->fields["ffn"] = 128;
  choice.architecture->fields["heads"] = 4;
  choice.architecture->fields["vocab"] = 256;
  EXPECT_TRUE(ResolveModel(choice).ok()) << ResolveModel(choice).status();
}

}  // namespace
}  // namespace trainyard
