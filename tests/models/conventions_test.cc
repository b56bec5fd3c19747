// Proves that the conventions give what the publishers print: FLOPs, TFLOP/s, MFU and time to train
// of each published run from its tokens per second, and FLOPs per token of their models.
#include "models/arch/conventions.h"

#include "common/bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/arch/registry.h"
#include "models/families/gpt_oss.h"
#include "models/families/nemotron_h.h"
#include "tests/testing/published_table.h"

namespace trainyard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

double GigaFlops(const std::string& preset, int64_t sequence, FlopsConvention convention) {
  return FlopsPerToken(FindPreset(preset)->config, sequence, convention).total() / 1e9;
}

double TokensPerSecond(const PublishedRun& run) {  // Of a device.
  return run.has("tokens_per_s_gpu") ? run.number("tokens_per_s_gpu")
                                     : run.number("tokens_per_s") / run.number("gpus");
}

TEST(PublishedRuns, TheirSpeedsGiveThePrintedFlopsAndMfu) {
  int flops_checked = 0, mfu_checked = 0;
  for (const PublishedRun& run : PublishedRuns()) {
    if (!run.has("tflops_per_gpu") && !run.has("mfu")) continue;
    SCOPED_TRACE(run.name());
    const FlopsConvention convention = ParseFlopsConvention(run.text("page")).value();
    const ModelConfig config = FindPreset(run.text("preset"))->config;
    const Flops flops = FlopsPerToken(config, int64_t(run.number("sequence")), convention,
                                      ParseFlopsTask(run.text("task")).value());
    const double per_second = flops.total() * TokensPerSecond(run);
    if (run.has("tflops_per_gpu")) {
      EXPECT_NEAR(per_second / 1e12 / run.number("tflops_per_gpu"), 1, 0.003);
      ++flops_checked;
    }
    if (run.has("mfu")) {
      const double peak = PublishedPeak(convention, run.text("precision") == "fp8");
      EXPECT_NEAR(100 * Mfu(per_second, 1, peak), run.number("mfu"), 0.05);
      ++mfu_checked;
    }
  }
  EXPECT_EQ(flops_checked + mfu_checked, 60);
}

// To the last printed digit.
TEST(PublishedRuns, TheirSpeedsGiveThePrintedTimesToTrain) {
  int checked = 0;
  for (const PublishedRun& run : PublishedRuns()) {
    for (const auto& [column, unit_seconds] :
         {std::pair{"days_1T", 86400.0}, {"days_10T_1k", 86400.0}, {"mins_10M", 60.0}}) {
      if (!run.has(column)) continue;
      SCOPED_TRACE(run.name());
      const auto time = PublishedTrainingTime(ParseFlopsConvention(run.text("page")).value(),
                                              ParseFlopsTask(run.text("task")).value());
      ASSERT_TRUE(time.has_value());
      const double devices = time->devices > 0 ? double(time->devices) : run.number("gpus");
      EXPECT_NEAR(time->tokens / (TokensPerSecond(run) * devices) / unit_seconds,
                  run.number(column), 0.51 * run.unit(column));
      ++checked;
    }
  }
  EXPECT_EQ(checked, 46);
}

// The table is the one home of the published configurations.
TEST(PublishedRuns, TheTableHasEveryConfiguration) {
  std::map<std::string, int> of_task;
  std::map<std::string, int> names;
  for (const PublishedRun& run : PublishedRuns()) {
    SCOPED_TRACE(run.name());
    ++of_task[run.text("task")];
    EXPECT_EQ(++names[run.name()], 1);
    const double model_ranks =
        run.number("tp") * run.number("pp") * (run.has("cp") ? run.number("cp") : 1);
    if (run.has("dp")) {
      EXPECT_EQ(run.number("dp") * model_ranks, run.number("gpus"));
    }
    if (run.has("fsdp") && run.text("task") == "pretrain") {
      EXPECT_EQ(run.number("fsdp") * model_ranks, run.number("gpus"));
    }
  }
  EXPECT_EQ(of_task.at("pretrain"), 79);
  EXPECT_EQ(of_task.at("sft") + of_task.at("lora"), 12);
}

// Half a unit of the last printed digit.
struct Printed {
  const char* preset;
  double full_4k, full_8k, causal_4k, causal_8k, half_digit;
};

TEST(ConventionsTest, FullAndCausalFormulasAgreeWithTheTable) {
  for (const Printed& row : {Printed{"llama3-8b", 51.47, 57.91, 48.25, 51.47, 0.005},
                             Printed{"llama3-70b", 449.2, 481.4, 433.1, 449.2, 0.05},
                             Printed{"llama3.1-405b", 2524, 2625, 2473, 2524, 0.5},
                             Printed{"nemotron4-340b", 2105, 2192, 2061, 2105, 0.5}}) {
    SCOPED_TRACE(row.preset);
    for (const FlopsConvention causal : {FlopsConvention::kAutoModel, FlopsConvention::kMegatron}) {
      EXPECT_NEAR(GigaFlops(row.preset, 4096, causal), row.causal_4k, row.half_digit);
      EXPECT_NEAR(GigaFlops(row.preset, 8192, causal), row.causal_8k, row.half_digit);
    }
    EXPECT_NEAR(GigaFlops(row.preset, 4096, FlopsConvention::kNemo20), row.full_4k, row.half_digit);
    EXPECT_NEAR(GigaFlops(row.preset, 8192, FlopsConvention::kNemo20), row.full_8k, row.half_digit);
  }
}

// The formulas leave the router out.
TEST(ConventionsTest, ExpertsCountWhereATokenGoesThroughThem) {
  constexpr FlopsConvention kAutoModel = FlopsConvention::kAutoModel;
  EXPECT_NEAR(GigaFlops("qwen3-30b-a3b", 4096, kAutoModel), 23.01, 0.005);
  EXPECT_NEAR(GigaFlops("qwen3-30b-a3b", 8192, kAutoModel), 27.84, 0.005);
  EXPECT_NEAR(GigaFlops("deepseek-v3-671b", 4096, kAutoModel), 249.8, 0.05);
  EXPECT_NEAR(GigaFlops("deepseek-v3-671b", 8192, kAutoModel), 280.5, 0.05);
  EXPECT_NEAR(GigaFlops("kimi-k2", 4096, kAutoModel), 204.5, 0.05);
  EXPECT_NEAR(GigaFlops("kimi-k2", 8192, kAutoModel), 219.8, 0.05);
}

// Megatron knows of no windows. AutoModel does, but takes 45 dims for the 64 of a head.
TEST(ConventionsTest, WindowsCountInAutoModelAlone) {
  const double s = 4096, window = 128, layers = 24, h = 2880, heads = 64, groups = 8, d = 64;
  const ModelConfig config = FindPreset("gpt-oss-20b")->config;
  const Flops megatron = FlopsPerToken(config, 4096, FlopsConvention::kMegatron);
  EXPECT_DOUBLE_EQ(megatron.attention, layers * 6 * heads * d * s);
  EXPECT_DOUBLE_EQ(megatron.qkvo, layers * 6 * h * d * (2 * heads + 2 * groups));
  EXPECT_DOUBLE_EQ(megatron.mlp, layers * 6 * 3 * h * 4 * h);
  EXPECT_DOUBLE_EQ(megatron.output, 6 * 201088 * h);
  const Flops automodel = FlopsPerToken(config, 4096, FlopsConvention::kAutoModel);
  const double within = window - window * (window - 1) / (2 * s);
  EXPECT_DOUBLE_EQ(automodel.attention, layers / 2 * heads * 45 * (6 * s + 12 * within));
  EXPECT_DOUBLE_EQ(automodel.qkvo, layers * 6 * h * 45 * (2 * heads + 2 * groups));
  // A window as long as the sequence changes nothing.
  EXPECT_DOUBLE_EQ(FlopsPerToken(config, 128, FlopsConvention::kAutoModel).attention,
                   layers * 6 * heads * 45 * 128);
  ModelConfig whole = config;
  whole.As<GptOssConfig>().window = 0;
  EXPECT_DOUBLE_EQ(FlopsPerToken(whole, 4096, FlopsConvention::kAutoModel).attention,
                   layers * 6 * heads * 45 * s);
}

// Of a hybrid, AutoModel counts the router, and the width of all heads as hidden; Megatron counts
// another width of Mamba, and more for its state.
TEST(ConventionsTest, LayersOfAPatternCountByTheirKind) {
  EXPECT_NEAR(GigaFlops("nemotron3-nano-30b", 4096, FlopsConvention::kAutoModel), 19.54, 0.005);
  EXPECT_NEAR(GigaFlops("nemotron3-nano-30b", 8192, FlopsConvention::kAutoModel), 19.94, 0.005);
  EXPECT_NEAR(GigaFlops("nemotron3-super-120b", 4096, FlopsConvention::kAutoModel), 74.44, 0.005);
  EXPECT_NEAR(GigaFlops("nemotron3-super-120b", 8192, FlopsConvention::kAutoModel), 75.25, 0.005);
  EXPECT_NEAR(GigaFlops("nemotron3-nano-30b", 4096, FlopsConvention::kMegatron), 21.67, 0.005);
  const ModelConfig nano = FindPreset("nemotron3-nano-30b")->config;
  EXPECT_THAT(Slips(nano, 4096, FlopsConvention::kAutoModel),
              ElementsAre(HasSubstr("84 dims; the model has 128")));
  EXPECT_THAT(Slips(nano, 4096, FlopsConvention::kMegatron),
              ElementsAre(HasSubstr("2 hidden wide; the model has 4096")));
}

// What the DGX Cloud pages print of a sequence; and 405b with its groups over heads taken as 8/64.
TEST(ConventionsTest, DgxCloudGivesThePagesNumbers) {
  const auto of_a_sequence = [](const char* preset, int64_t sequence, FlopsConvention convention) {
    return GigaFlops(preset, sequence, convention) * 1e9 * double(sequence);
  };
  constexpr FlopsConvention kLlama = FlopsConvention::kDgxcLlama31;
  EXPECT_DOUBLE_EQ(of_a_sequence("llama3-8b", 8192, kLlama), 4.74e14);
  EXPECT_DOUBLE_EQ(of_a_sequence("llama3-70b", 8192, kLlama), 3.94e15);
  constexpr FlopsConvention kNemotron = FlopsConvention::kDgxcNemotron4;
  EXPECT_NEAR(of_a_sequence("nemotron4-15b", 4096, kNemotron), 434.5e12, 0.05e12);
  EXPECT_DOUBLE_EQ(of_a_sequence("nemotron4-340b", 4096, kNemotron), 1.01e16);
  const double with_64 = GigaFlops("llama3.1-405b", 8192, kLlama);
  const double with_128 = GigaFlops("llama3.1-405b", 8192, FlopsConvention::kNemo20);
  EXPECT_NEAR(with_64 - with_128, 126 * 12 * 16384.0 * 16384.0 * (8.0 / 64 - 8.0 / 128) / 1e9,
              1e-6);
}

TEST(ConventionsTest, SlipsAreNamed) {
  const auto slips = [](const char* preset, FlopsConvention convention,
                        FlopsTask task = FlopsTask::kPretrain) {
    return Slips(FindPreset(preset)->config, 4096, convention, task);
  };
  EXPECT_THAT(slips("llama3.1-405b", FlopsConvention::kDgxcLlama31),
              ElementsAre(HasSubstr("8/64; the model has 8/128")));
  EXPECT_THAT(slips("llama3-8b", FlopsConvention::kDgxcLlama31), IsEmpty());
  EXPECT_THAT(Slips(FindPreset("llama3-8b")->config, 8192, FlopsConvention::kDgxcLlama31),
              ElementsAre(HasSubstr("rounded to 4.74e+14")));
  EXPECT_THAT(slips("nemotron4-15b", FlopsConvention::kDgxcNemotron4),
              ElementsAre(HasSubstr("the model has 8 of 48")));
  EXPECT_THAT(slips("llama3-8b", FlopsConvention::kDgxcNemotron4),
              ElementsAre(HasSubstr("8 of 32"), HasSubstr("the model has 14336")));
  EXPECT_THAT(slips("gpt-oss-20b", FlopsConvention::kAutoModel),
              ElementsAre(HasSubstr("45 dims; the model has 64")));
  EXPECT_THAT(slips("gpt-oss-20b", FlopsConvention::kMegatron),
              ElementsAre(HasSubstr("12 layers with a window of 128")));
  EXPECT_THAT(slips("llama3-8b", FlopsConvention::kAutoModel, FlopsTask::kLora),
              ElementsAre(HasSubstr("attention has no weights")));
  EXPECT_THAT(slips("llama3-8b", FlopsConvention::kExact), IsEmpty());
}

TEST(ConventionsTest, CheckpointsHaveThePrintedSizes) {
  for (const auto& [preset, size] : {std::pair{"llama3-8b", "104.7 GiB"},
                                     {"llama3-70b", "919.9 GiB"},
                                     {"llama3.1-405b", "5.17 TiB"},
                                     {"nemotron4-15b", "203.8 GiB"},
                                     {"nemotron4-340b", "4.34 TiB"}}) {
    const int64_t parameters = CountParameters(FindPreset(preset)->config).total;
    EXPECT_EQ(FormatBytes(double(parameters * kPublishedCheckpointBytes)), size) << preset;
  }
}

// Adapters of rank 16 have 16 (in + out) weights.
TEST(ConventionsTest, AutoModelShrinksByTheTrainedShare) {
  const ModelConfig config = FindPreset("llama3-8b")->config;
  const double h = 4096, f = 14336, keys = 1024;
  const double adapters = 32 * 16 * (2 * (h + h) + 2 * (h + keys) + 3 * (h + f));
  const double ratio = adapters / double(CountParameters(config).total);
  const double whole = FlopsPerToken(config, 4096, FlopsConvention::kAutoModel).total();
  const double lora =
      FlopsPerToken(config, 4096, FlopsConvention::kAutoModel, FlopsTask::kLora).total();
  EXPECT_NEAR(lora / whole, (2 + ratio) / 3, 1e-12);
  EXPECT_EQ(FlopsPerToken(config, 4096, FlopsConvention::kAutoModel, FlopsTask::kSft).total(),
            whole);
}

TEST(ConventionsTest, WhatNoPageCountsIsRefused) {
  const auto refusal = [](const char* preset, FlopsConvention convention, FlopsTask task) {
    const absl::Status status = CheckConvention(FindPreset(preset)->config, convention, task);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal("dit-xl-2", FlopsConvention::kMegatron, FlopsTask::kPretrain),
              HasSubstr("wanted exact"));
  for (const char* const other : {"nemotron3-nano-30b", "deepseek-v3-671b"}) {
    EXPECT_THAT(refusal(other, FlopsConvention::kDgxcLlama31, FlopsTask::kPretrain),
                HasSubstr("attention and a dense MLP"));
  }
  for (const FlopsConvention none :
       {FlopsConvention::kExact, FlopsConvention::kMegatron, FlopsConvention::kDgxcLlama31}) {
    EXPECT_THAT(refusal("llama3-8b", none, FlopsTask::kLora), HasSubstr("nemo20 or automodel"));
  }
  EXPECT_THAT(refusal("qwen3-30b-a3b", FlopsConvention::kAutoModel, FlopsTask::kLora),
              HasSubstr("models with experts"));
}

// The first layers of a hybrid model may have no attention.
TEST(ConventionsTest, NoLayersOfAKindCountAsNone) {
  ModelConfig config = FindPreset("nemotron3-nano-30b")->config;
  config.As<NemotronHConfig>().hybrid_pattern = "MM";
  config.As<NemotronHConfig>().layers = 2;
  const Flops flops = FlopsPerToken(config, 4096, FlopsConvention::kMegatron);
  EXPECT_EQ(flops.attention, 0);
  EXPECT_EQ(flops.qkvo, 0);
  EXPECT_EQ(flops.mlp, 0);
}

TEST(ConventionsTest, NamesParseAndWrongOnesAreAnswered) {
  for (const std::string& name : FlopsConventionNames()) {
    EXPECT_EQ(Name(*ParseFlopsConvention(name)), name);
  }
  const absl::Status status = ParseFlopsConvention("exakt").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("did you mean exact?"));
  EXPECT_THAT(std::string(ParseFlopsTask("lorra").status().message()),
              HasSubstr("did you mean lora?"));
}

}  // namespace
}  // namespace trainyard::testing
