#include "bench/gpu_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bench/step_case.h"
#include "common/check.h"
#include "common/files.h"
#include "models/arch/registry.h"
#include "train/step/rank_engine.h"

namespace trainyard::bench {
namespace {

// Milliseconds of one micro-batch and the optimizer.
double StepMilliseconds(const StepCase& step) {
  const ResolvedCase resolved = *Resolve(step);
  const RankPlan plan = *PlanRank(resolved.job, resolved.model, 0, DeviceKind::kCuda);
  const GpuRates gpu = *RatesOf("h200");
  double seconds = PredictGaps(plan.program, 1);
  for (const Instance& instance : plan.program.instances) {
    if (instance.list < List::kForward || instance.when == When::kValidation) continue;
    const OpPrediction op = Predict(gpu, plan.program, instance, 1);
    EXPECT_GT(op.seconds, 0) << instance.op->name();
    seconds += op.seconds;
  }
  return seconds * 1e3;
}

// A prediction made by hand from the same anchors, from shapes and published rates: 37 and 144 ms
// with chunks of 512 rows in the head and logits in f32. The larger chunks of a GPU save 2 and 6 ms
// in adding to the gradient of the head's weight. Logits in bf16 save 6 bytes each outside of
// products, 1.2 and 1.5 ms.
TEST(GpuModel, AgreesWithAPredictionByHand) {
  EXPECT_NEAR(StepMilliseconds({.model = "gpt2-124m", .micro = 16, .sequence = 1024}), 33.8,
              0.16 * 33.8);
  EXPECT_NEAR(StepMilliseconds({.model = "llama3.2-1b", .micro = 2, .sequence = 4096}), 136.5,
              0.1 * 136.5);
  EXPECT_NEAR(StepMilliseconds({.model = "llama2-7b", .micro = 1, .sequence = 4096}), 339,
              0.1 * 339);
}

// Logits and their gradient pass through memory as bf16, and once each: the product writes them,
// the loss reads and writes them, and two products read them. In f32 the loss read them twice.
TEST(GpuModel, TheHeadsLogitsAreHalfAsLargeAndReadOnce) {
  const ResolvedCase resolved =
      *Resolve({.model = "gpt2-124m", .micro = 16, .sequence = 1024, .layers = 1});
  const RankPlan plan = *PlanRank(resolved.job, resolved.model, 0, DeviceKind::kCuda);
  const GpuRates gpu = *RatesOf("h200");
  constexpr double kTokens = 16 * 1024, kVocab = 50304;
  double head = 0, flops = 0;
  for (const Instance& instance : plan.program.instances) {
    const OpPrediction op = Predict(gpu, plan.program, instance, 1);
    if (op.part != Part::kHead || instance.when == When::kValidation) continue;
    head += op.seconds;
    flops += instance.op->CostOf(plan.program, instance).flops;
  }
  const double loss = kTokens * kVocab * (2 + 2) / gpu.memory;
  EXPECT_GT(head, loss + flops / gpu.products);
  EXPECT_LT(head, loss + 1.2 * flops / gpu.products);
}

TEST(GpuModel, OneOrderCostsTime) {
  const StepCase step{.model = "llama3.2-1b", .micro = 2, .sequence = 4096, .layers = 2};
  StepCase any = step;
  any.deterministic = false;
  EXPECT_LT(StepMilliseconds(any), StepMilliseconds(step));
}

// A layer's four matrices of 4096 x 4096 and three of 4096 x 11008 take 2.3e13 FLOPs in Muon.
TEST(GpuModel, ProductsOfTheOptimizerTakeTime) {
  const StepCase step{.model = "llama2-7b", .micro = 1, .sequence = 4096, .layers = 1};
  StepCase muon = step;
  muon.optimizer = "muon";
  const double milliseconds = 2.3e13 / RatesOf("h200")->products * 1e3;
  EXPECT_NEAR(StepMilliseconds(muon) - StepMilliseconds(step), milliseconds, 0.1 * milliseconds);
}

// 12 bytes of each parameter are read, and as many written, over the link. The rest of the step
// takes the time that it took.
TEST(GpuModel, OffloadedStateTakesTheLinksTime) {
  const StepCase step{.model = "llama3.2-1b", .micro = 1, .sequence = 1024};
  StepCase offloaded = step;
  offloaded.offload = true;
  constexpr double kParameters = 1.2358e9, kAdamW = 12 * kParameters / 45e9 * 1e3;
  const double on_device = (12 * 2 + 4 + 2) * kParameters / 4.2e12 * 1e3;
  EXPECT_NEAR(StepMilliseconds(offloaded) - StepMilliseconds(step), kAdamW - on_device,
              0.01 * kAdamW);
}

double AttentionSeconds(const StepCase& step) {
  const ResolvedCase resolved = *Resolve(step);
  const RankPlan plan = *PlanRank(resolved.job, resolved.model, 0, DeviceKind::kCuda);
  double seconds = 0;
  for (const Instance& instance : plan.program.instances) {
    const OpPrediction op = Predict(*RatesOf("h200"), plan.program, instance, step.documents);
    if (op.part == Part::kAttention && instance.when != When::kValidation) seconds += op.seconds;
  }
  return seconds;
}

// Packed documents, and gradients in one order whose memory would be too much, are ours to compute.
TEST(GpuModel, OurAttentionIsSlowerThanCudnns) {
  const StepCase short_step{.model = "llama3.2-1b", .micro = 1, .sequence = 8192, .layers = 1};
  StepCase long_step = short_step;
  long_step.sequence = 16384;
  StepCase any_order = long_step;
  any_order.deterministic = false;
  EXPECT_GT(AttentionSeconds(long_step), 5 * AttentionSeconds(short_step))
      << "four times the products";
  EXPECT_GT(AttentionSeconds(long_step), 1.5 * AttentionSeconds(any_order));
}

// Four documents have a quarter of the pairs. The rate of short ones is lower.
TEST(GpuModel, AttentionLeavesOutPairsOfOtherDocuments) {
  const auto seconds = [](int64_t documents) {
    return AttentionSeconds(
        {.model = "llama3-8b", .micro = 1, .sequence = 8192, .layers = 1, .documents = documents});
  };
  EXPECT_GT(seconds(4), seconds(2) / 2);
  EXPECT_LT(seconds(4), 0.6 * seconds(2));
}

// cuDNN computes latent attention. By hand, one layer of DeepSeek-V3 has 128 heads with keys of 192
// and values of 128, forward has two products of each pair, backward five, three of them of keys;
// cuDNN's rates at 4,096 tokens and heads of 128 are 610 and 427 TFLOP/s.
TEST(GpuModel, LatentAttentionTakesWhatCudnnsRateSays) {
  constexpr double kPairs = 4096.0 * 4097 / 2, kHeads = 128, kKeys = 192, kValues = 128;
  const double forward = 2 * kPairs * kHeads * (kKeys + kValues) / 610e12;
  const double backward = 2 * kPairs * kHeads * 2.5 * (kKeys + kValues) / 427e12;
  const double seconds =
      AttentionSeconds({.model = "deepseek-v3", .micro = 1, .sequence = 4096, .layers = 4}) / 4;
  EXPECT_NEAR(seconds, forward + backward, 0.05 * (forward + backward));
}

// By arithmetic, 8 bits are worth 1.2 for Llama 2 7B, 1.1 for Llama 3.2 1B and nothing for GPT-2.
TEST(GpuModel, EightBitsHelpLargeProductsAlone) {
  const auto gain = [](StepCase step) {
    const double wide = StepMilliseconds(step);
    step.precision = "fp8_current";
    return wide / StepMilliseconds(step);
  };
  EXPECT_LT(gain({.model = "gpt2-124m", .micro = 16, .sequence = 1024}), 1.05);
  EXPECT_NEAR(gain({.model = "llama3.2-1b", .micro = 4, .sequence = 4096}), 1.1, 0.1);
  EXPECT_NEAR(gain({.model = "llama2-7b", .micro = 1, .sequence = 4096}), 1.2, 0.1);
}

TEST(GpuModel, NothingIsFasterThanItsBytesAndProducts) {
  const ResolvedCase resolved =
      *Resolve({.model = "qwen3-30b-a3b", .micro = 1, .sequence = 4096, .layers = 2});
  const RankPlan plan = *PlanRank(resolved.job, resolved.model, 0, DeviceKind::kCuda);
  const GpuRates gpu = *RatesOf("h200");
  for (const Instance& instance : plan.program.instances) {
    const Cost cost = instance.op->CostOf(plan.program, instance);
    EXPECT_GE(Predict(gpu, plan.program, instance, 1).seconds, cost.flops / gpu.peak)
        << instance.op->name();
  }
}

// Bug it must catch: a scan that costs no more than its operands' bytes, ten times too little.
TEST(GpuModel, AScanWritesItsScratchMemoryAndReadsIt) {
  const ResolvedCase resolved =
      *Resolve({.model = "nemotron3-nano-30b", .micro = 1, .sequence = 8192, .layers = 1});
  const RankPlan plan = *PlanRank(resolved.job, resolved.model, 0, DeviceKind::kCuda);
  const GpuRates gpu = *RatesOf("h200");
  double seconds = 0;
  for (const Instance& instance : plan.program.instances) {
    if (instance.when == When::kValidation) continue;
    if (!absl::StartsWith(instance.op->name(), "state_scan")) continue;
    seconds += Predict(gpu, plan.program, instance, 1).seconds;
  }
  // By the sizes of kernels/state_space/state_scratch.h: about 4 GB of traffic.
  EXPECT_GT(seconds, 0.5e-3);
  EXPECT_LT(seconds, 2.5e-3);
}

TEST(StepCase, WhatNoModelHasIsRefused) {
  EXPECT_EQ(Resolve({.model = "gpt2-124m", .sequence = 1025}).status().message(),
            "--sequence 1025: gpt2-124m has at most 1024");
  EXPECT_THAT(Resolve({.model = "no"}).status().message(), ::testing::HasSubstr("known are"));
}

std::string Written(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/case.json";
  CHECK(WriteFileAtomic(path, text).ok());
  return path;
}

TEST(StepCase, APresetMayHaveOtherSizes) {
  const std::string overrides = R"({"layers": 1, "moe.experts": 8, "moe.top_k": 2})";
  const auto changed =
      Resolve({.model = Written(R"({"preset": "qwen3-30b-a3b", "overrides": )" + overrides + "}")});
  ASSERT_TRUE(changed.ok()) << changed.status();
  const ModelFacts facts = FactsOf(changed->model);
  EXPECT_EQ(facts.experts->experts, 8);
  EXPECT_EQ(facts.layers, 1);
  EXPECT_EQ(facts.vocab, FactsOf(FindPreset("qwen3-30b-a3b")->config).vocab) << "as in the preset";
}

// Bug it must catch: a check that measures the preset as it is, because a field is misspelt.
TEST(StepCase, OverridesThatMeanNothingAreRefused) {
  const auto refusal = [](const std::string& overrides) {
    const std::string text = R"({"preset": "qwen3-30b-a3b", "overrides": )" + overrides + "}";
    return std::string(Resolve({.model = Written(text)}).status().message());
  };
  EXPECT_THAT(refusal(R"({"moe.expert": 8})"), ::testing::HasSubstr("moe.expert"));
  EXPECT_THAT(refusal(R"({"layers": "1"})"), ::testing::HasSubstr("wanted an integer"));
  EXPECT_THAT(refusal("[]"), ::testing::HasSubstr("an object of overrides"));
}

TEST(GpuModel, AnUnknownGpuIsRefused) {
  EXPECT_THAT(RatesOf("h300").status().message(), ::testing::HasSubstr("wanted h100 or h200"));
}

std::string Program(const std::string& name) {
  const char* const bin = std::getenv("TRAINYARD_BIN");
  CHECK(bin != nullptr) << "TRAINYARD_BIN is not set";
  return absl::StrCat(bin, "/../bench/", name);
}

int ExitOf(const std::string& arguments) {
  const std::string command = Program("predict_step --case gpt2-124m --layers 1 ");
  return std::system(absl::StrCat(command, arguments).c_str());
}

TEST(PredictStep, OutputThatIsLostIsAnError) {
  EXPECT_EQ(ExitOf(">/dev/null"), 0);
  EXPECT_NE(ExitOf(">/dev/full"), 0);
  EXPECT_NE(ExitOf(">&-"), 0);
}

TEST(PredictStep, KnowsRatesOfBf16AndEightBitsAlone) {
  EXPECT_EQ(ExitOf("--precision fp8_blockwise >/dev/null"), 0);
  EXPECT_NE(ExitOf("--precision f32 >/dev/null"), 0);
}

// What a check of a GPU reads, and the seconds that it saves. Bug it must catch: a step without
// rates that measures them all the same, or has no FLOPs.
TEST(TrainStep, WithoutRatesPrintsTheFlopsAlone) {
  const std::string path = ::testing::TempDir() + "/train_step.txt";
  const auto printed = [&](const std::string& options) {
    const std::string command = absl::StrCat(
        Program("train_step --case byte --layers 1 --micro 1 --sequence 64 --steps 1 --threads 1 "),
        options, " >", path);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return *ReadFile(path);
  };
  const std::string without = printed("--without-rates");
  EXPECT_THAT(without, ::testing::ContainsRegex("\nmodel [0-9.]+ GFLOP a step\n"));
  EXPECT_THAT(without, ::testing::Not(::testing::HasSubstr("matrix rate")));
  EXPECT_THAT(printed(""), ::testing::ContainsRegex("\nmatrix rate [0-9.]+ GFLOP/s, memory rate "));
}

}  // namespace
}  // namespace trainyard::bench
