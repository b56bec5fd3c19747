// Proves that a job's steps become what the published tables print: by the median, and by the
// convention of the page.
#include "cli/published_line.h"

#include <gtest/gtest.h>

#include "models/arch/registry.h"
#include "train/data/synthetic.h"

namespace trainyard::cli {
namespace {

JobConfig JobOf(const std::string& page) {
  JobConfig job;
  job.batch = {.global = 256, .micro = 1, .sequence = 8192};
  job.parallelism.tensor = 8;
  job.devices = 512;
  if (!page.empty()) job.labels[kPageLabel] = page;
  return job;
}

// Steps of so many seconds on devices of 1979 TFLOP/s.
std::vector<v1::StepRecord> StepsOf(const std::vector<double>& seconds, double exact_flops) {
  std::vector<v1::StepRecord> steps;
  for (const double s : seconds) {
    v1::StepRecord& step = steps.emplace_back();
    step.set_seconds(s);
    step.set_model_flops_per_second_per_device(exact_flops / s);
    step.set_mfu(exact_flops / s / 1979e12);
  }
  return steps;
}

// A published row: 12.37 s, MFU 44.35 %.
TEST(PublishedLine, IsTheMedianByTheConventionOfThePage) {
  const ModelConfig model = FindPreset("llama3.1-405b")->config;
  const JobConfig job = JobOf("dgxc-llama31");
  const double tokens = 256.0 * 8192 / 512, exact = FlopsPerToken(model, 8192).total() * tokens;
  // The first of ten steps does not count, nor does one that takes long.
  const PublishedSpeed speed = SpeedOf(
      job, model, StepsOf({99, 12.36, 12.37, 12.35, 12.38, 12.37, 12.37, 12.39, 12.36, 30}, exact));
  EXPECT_DOUBLE_EQ(speed.seconds_per_step, 12.37);
  EXPECT_NEAR(speed.tokens_per_s_gpu, 331.12, 0.01);
  EXPECT_NEAR(speed.mfu, 44.35, 0.05);
  EXPECT_NEAR(speed.tflops_per_gpu, 0.4435 * 1979, 1);

  const PublishedSpeed ours = SpeedOf(JobOf(""), model, StepsOf({12.37}, exact));
  EXPECT_NEAR(ours.tflops_per_gpu, exact / 12.37 / 1e12, 1e-6);
  EXPECT_LT(ours.mfu, speed.mfu - 1);
}

// Published rows of Llama 2 7B on 8 GPUs, for a GPU: 16,891 tokens/s and 673 TFLOP/s with all
// weights, 24,824 and 663 with LoRA.
TEST(PublishedLine, CountsFineTuningAsThePageDoes) {
  const ModelConfig model = FindPreset("llama2-7b")->config;
  JobConfig job = JobOf("nemo20");
  job.batch = {.global = 32, .micro = 1, .sequence = 4096};
  job.devices = 8;
  const double tokens = 32.0 * 4096 / 8;
  const auto tflops = [&](double tokens_per_second) {
    const std::vector<v1::StepRecord> steps = StepsOf({tokens / tokens_per_second}, 1e12);
    return SpeedOf(job, model, steps).tflops_per_gpu;
  };
  job.labels[kPageTaskLabel] = "sft";
  EXPECT_NEAR(tflops(16891), 673, 1);
  job.labels[kPageTaskLabel] = "lora";
  EXPECT_NEAR(tflops(24824), 663, 1);
  // By its own work, an adapter computes no gradients of the base's weights.
  job.labels.clear();
  const double all = tflops(24824);
  job.model.preset = "llama2-7b";
  job.data = SyntheticData{};
  job.adapter.emplace().lora = {.rank = 16};
  EXPECT_NEAR(tflops(24824) / all, 0.7, 0.05);
}

TEST(PublishedLine, WithoutAPeakHasNoMfu) {
  const ModelConfig model = FindPreset("llama3-8b")->config;
  std::vector<v1::StepRecord> steps = StepsOf({2, 1, 1}, 1e12);
  for (v1::StepRecord& step : steps) step.clear_mfu();
  EXPECT_EQ(SpeedOf(JobOf("nemo20"), model, steps).mfu, 0);
}

TEST(PublishedLine, ALabelWithoutAFormulaMeansExact) {
  const ModelConfig llama = FindPreset("llama3-8b")->config, dit = FindPreset("dit-xl-2")->config;
  EXPECT_EQ(CountOf(JobOf("nemo20"), llama).convention, FlopsConvention::kNemo20);
  EXPECT_EQ(CountOf(JobOf("nemo20"), dit).convention, FlopsConvention::kExact);
  EXPECT_EQ(CountOf(JobOf("today"), llama).convention, FlopsConvention::kExact);
  EXPECT_EQ(CountOf(JobOf(""), llama).convention, FlopsConvention::kExact);
}

}  // namespace
}  // namespace trainyard::cli
