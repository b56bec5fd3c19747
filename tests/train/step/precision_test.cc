// Proves that layouts agree in f32 and bf16, too, as far as rounding lets them, with micro-batches
// of two sequences; the exact proof is layouts_test's, in f64 with one. Catches a dtype that a
// layout's collectives or their buffers get wrong, and rows of one sequence taken for another's.

#include <gmock/gmock.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/train/step/layouts.h"

namespace trainyard::testing {
namespace {

struct RoundedCase {
  LayoutCase layout;
  double tolerance;
};

// Sums over ranks are taken in another order than one rank's, and activations are rounded where
// they are sent. Largest difference over the sample, of losses, gradient norms, gradients and
// weights of two steps (relative, in the L2 norm of a tensor): f64 3e-15, f32 1.6e-6, bf16 0.031.
constexpr double kF64 = 1e-10, kF32 = 1e-5, kBF16 = 0.1;

std::vector<RoundedCase> Sample() {
  std::vector<RoundedCase> cases;
  for (const auto& [precision, tolerance] :
       {std::pair(PrecisionName::kF64, kF64), std::pair(PrecisionName::kF32, kF32),
        std::pair(PrecisionName::kBF16, kBF16)}) {
    for (const auto& [parallelism, data] :
         {std::pair(ParallelismConfig{.tensor = 2}, 1),
          std::pair(ParallelismConfig{.tensor = 4}, 1),
          std::pair(ParallelismConfig{.context = 2}, 1),
          std::pair(ParallelismConfig{.pipeline = 2}, 1),
          std::pair(ParallelismConfig{.zero = Zero::kNone}, 2), std::pair(ParallelismConfig{}, 4),
          std::pair(ParallelismConfig{.pipeline = 2, .virtual_pipeline = 2}, 2),
          std::pair(ParallelismConfig{.zero = Zero::kFull}, 2),
          std::pair(ParallelismConfig{.tensor = 2, .pipeline = 2, .context = 2}, 1)}) {
      for (const char* family : {"llama", "gpt3"}) {
        LayoutCase c = MakeLayoutCase(family, parallelism, data);
        c.job.precision = precision;
        c.job.batch.micro = 2;
        c.job.batch.global *= 2;
        cases.push_back({c, tolerance});
      }
    }
  }
  return cases;
}

class Rounded : public ::testing::TestWithParam<RoundedCase> {};

TEST_P(Rounded, TwoStepsEqualThoseOfOneRankAsFarAsRoundingLets) {
  const TrainedSteps steps = Train(GetParam().layout);
  const double difference = LargestDifference(steps, TrainOnOneRank(GetParam().layout));
  RecordProperty("difference", ::testing::PrintToString(difference));
  EXPECT_LT(difference, GetParam().tolerance);
}

std::string NameOfRounded(const ::testing::TestParamInfo<RoundedCase>& info) {
  return absl::StrCat(info.index, "_", Name(info.param.layout.job.precision), "_",
                      info.param.layout.name());
}

INSTANTIATE_TEST_SUITE_P(Sample, Rounded, ::testing::ValuesIn(Sample()), NameOfRounded);

}  // namespace
}  // namespace trainyard::testing
