// Proves what ZeRO and the dtype of reduction do to the bits: with one micro-batch all ZeRO modes
// give the same gradients, in every precision; gradients sent in bf16 are off by its rounding, and
// by no more.
#include <cmath>

#include "gtest/gtest.h"
#include "tests/train/step/layouts.h"

namespace trainyard::testing {
namespace {

LayoutCase Case(const ParallelismConfig& parallelism, int64_t data, PrecisionName precision,
                int64_t micro_batches) {
  LayoutCase c = MakeLayoutCase("llama", parallelism, data);
  c.job.precision = precision;
  c.job.batch.global = data * micro_batches;
  return c;
}

class ZeroBits : public ::testing::TestWithParam<PrecisionName> {};

// Each micro-batch's gradients are summed over ranks under FULL, over micro-batches first under the
// others: with one, the sums are the same ones.
TEST_P(ZeroBits, OfOneMicroBatchAreEqual) {
  for (const Reduction reduction : {Reduction::kF32, Reduction::kBF16}) {
    for (const int64_t tensor : {1, 2}) {
      const auto train = [&](Zero zero) {
        const ParallelismConfig p{
            .tensor = tensor, .context = 2, .zero = zero, .reduction = reduction};
        return Train(Case(p, 2, GetParam(), 1));
      };
      const TrainedSteps none = train(Zero::kNone);
      for (const Zero zero : {Zero::kOptimizer, Zero::kFull}) {
        SCOPED_TRACE("zero " + std::to_string(int(zero)) + " tensor " + std::to_string(tensor));
        const TrainedSteps got = train(zero);
        EXPECT_FALSE(got.copies_differ);
        EXPECT_EQ(got.losses[0], none.losses[0]);
        EXPECT_EQ(got.gradients[0], none.gradients[0]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, ZeroBits,
                         ::testing::Values(PrecisionName::kF64, PrecisionName::kF32,
                                           PrecisionName::kBF16),
                         [](const auto& info) { return Name(info.param); });

double Norm(const std::vector<double>& values) {
  double squares = 0;
  for (double value : values) squares += value * value;
  return std::sqrt(squares);
}

class Bf16Reduction : public ::testing::TestWithParam<Zero> {};

// Rounding to bf16 is off by at most 2^-9 of what is rounded: once each rank's gradients of what it
// sends, once the sums. The former are no larger together than `kCancelled` times the sum; random
// tokens cancel little.
TEST_P(Bf16Reduction, IsOffByTheRoundingOfWhatIsSent) {
  constexpr int64_t kData = 4;
  constexpr double kCancelled = 4, kBound = (kCancelled + 1) / 512;
  const auto train = [&](Reduction reduction, int64_t micro_batches) {
    const ParallelismConfig p{.zero = GetParam(), .reduction = reduction};
    return Train(Case(p, kData, PrecisionName::kF64, micro_batches));
  };
  for (const int64_t micro_batches : {1, 3}) {
    const TrainedSteps exact = train(Reduction::kF32, micro_batches);
    const TrainedSteps rounded = train(Reduction::kBF16, micro_batches);
    EXPECT_FALSE(rounded.copies_differ);
    EXPECT_EQ(rounded.losses[0], exact.losses[0]);
    for (const auto& [name, want] : exact.gradients[0]) {
      std::vector<double> difference = rounded.gradients[0].at(name);
      for (size_t i = 0; i < want.size(); ++i) difference[i] -= want[i];
      EXPECT_LT(Norm(difference), kBound * Norm(want)) << name;
      EXPECT_GT(Norm(difference), 1e-6 * Norm(want)) << name << " was not rounded";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Zero, Bf16Reduction,
                         ::testing::Values(Zero::kNone, Zero::kOptimizer, Zero::kFull),
                         [](const auto& info) { return "zero" + std::to_string(int(info.param)); });

}  // namespace
}  // namespace trainyard::testing
