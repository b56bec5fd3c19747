// Proves kernels/state_space/state_init.h: decays are the logarithms of indices; steps lie in their
// range, are spread log-uniformly, and depend on the global index alone.

#include "kernels/state_space/state_init.h"

#include <cmath>

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"

namespace trainyard::testing::state_init {

Array<double> Decays(int64_t count, int64_t first) {
  auto y = Poison<double>({count});
  Call(StateInitArgs{.y = y, .kind = StateInitKind::kDecay, .first = first});
  return y;
}

Array<double> Steps(int64_t count, int64_t first, const StepRange& steps) {
  const StepState state{.seed = 5};
  auto y = Poison<double>({count});
  Call(StateInitArgs{.y = y,
                     .kind = StateInitKind::kSteps,
                     .first = first,
                     .steps = steps,
                     .stream = 3,
                     .state = &state});
  return y;
}

TEST(StateInit, DecaysAreLogarithmsOfIndices) {
  ExpectClose(Decays(3, 0).v, {0, std::log(2.0), std::log(3.0)}, 1e-14);
  ExpectClose(Decays(2, 6).v, {std::log(7.0), std::log(8.0)}, 1e-14);
}

TEST(StateInit, StepsAreLogUniform) {
  constexpr int64_t kCount = 4000;
  double mean = 0;
  for (const double y : Steps(kCount, 0, {.least = 0.001, .most = 0.1}).v) {
    const double step = std::log(1 + std::exp(y));
    EXPECT_GE(step, 0.001 * (1 - 1e-9));
    EXPECT_LE(step, 0.1 * (1 + 1e-9));
    mean += std::log10(step) / double(kCount);
  }
  EXPECT_NEAR(mean, -2, 5 / std::sqrt(3.0 * double(kCount)));  // Five standard deviations.
  for (const double y : Steps(9, 0, {.least = 0.001, .most = 0.002, .floor = 0.01}).v) {
    EXPECT_NEAR(std::log(1 + std::exp(y)), 0.01, 1e-12);
  }
}

TEST(StateInit, PartsHaveTheValuesOfTheWhole) {
  const StepRange range = {.least = 0.001, .most = 0.1, .floor = 1e-4};
  const auto whole = Steps(10, 0, range), part = Steps(4, 6, range);
  EXPECT_EQ(std::vector<double>(whole.v.begin() + 6, whole.v.end()), part.v);
}

}  // namespace trainyard::testing::state_init
