// Proves that fused ops compute what the ops do that they stand for: two training steps with the
// lists fused and not, of every family, on one rank and on samples of what passes and
// layouts do with a list: losses, every gradient, updated weights.

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "models/arch/registry.h"
#include "tests/testing/tolerance.h"
#include "tests/train/step/layouts.h"

namespace trainyard::testing {
namespace {

struct FusionLayout {
  const char* name;
  ParallelismConfig parallelism = {};
  int64_t data = 1;
  RecomputeConfig recompute = {};
};

const FusionLayout kLayouts[] = {
    {.name = "one_rank"},
    {.name = "tensor", .parallelism = {.tensor = 2}},
    {.name = "pipeline", .parallelism = {.pipeline = 2}},
    {.name = "zero_full", .parallelism = {.zero = Zero::kFull}, .data = 2},
    {.name = "blocks_again", .recompute = {.blocks = 1}},
    {.name = "norms_again", .recompute = {.norms_and_activations = true}},
    {.name = "all",
     .parallelism = {.tensor = 2, .pipeline = 2, .zero = Zero::kFull},
     .data = 2,
     .recompute = {.blocks = 1, .norms_and_activations = true}},
};

using Case = std::tuple<std::string, FusionLayout>;

class Fusion : public ::testing::TestWithParam<Case> {
 protected:
  Fusion() {
    const auto& [model, layout] = GetParam();
    fused_ = MakeLayoutCase(model, layout.parallelism, layout.data);
    fused_.job.recompute = layout.recompute;
    fused_.masked = false;  // The fewer tokens count, the more does rounding.
  }
  // Between two steps with fused ops and without.
  double Difference() const {
    LayoutCase apart = fused_;
    apart.fuse = false;
    return LargestDifference(Train(fused_), Train(apart));
  }
  LayoutCase fused_;
};

TEST_P(Fusion, ChangesNoNumberInF64) { EXPECT_LE(Difference(), 1e-12); }

// What is added to the residual stream's gradient is not rounded before. Gradients of parameters
// are sums over the tokens of a step, and each of the two steps rounds.
TEST_P(Fusion, ChangesF32ByRounding) {
  fused_.job.precision = PrecisionName::kF32;
  const int64_t tokens = fused_.job.batch.global * fused_.job.batch.sequence;
  EXPECT_LE(Difference(), 2 * Tolerance(DType::kF32, tokens));
}

INSTANTIATE_TEST_SUITE_P(Families, Fusion,
                         ::testing::Combine(::testing::ValuesIn(FamilyNames()),
                                            ::testing::ValuesIn(kLayouts)),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param).name;
                         });

}  // namespace
}  // namespace trainyard::testing
