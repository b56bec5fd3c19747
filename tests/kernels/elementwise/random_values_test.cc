// Proves kernels/elementwise/random_values.h on the CPU: values depend on the global index alone,
// so a shard holds exactly its part of the whole; mean and deviation are as asked.

#include "kernels/elementwise/random_values.h"

#include <algorithm>
#include <cmath>

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::random_values {

constexpr uint64_t kStream = HashName("model.layers.0.mlp.up_proj.weight");

Array<float> Whole(int threads = 2) {
  const StepState state{.seed = 7};
  auto y = Poison<float>({300, 200});
  Call(
      RandomValuesArgs{
          .y = y, .stream = kStream, .scale = 0.02, .global_columns = 200, .state = &state},
      threads);
  return y;
}

TEST(RandomValues, HasTheMeanAndDeviationAskedFor) {
  const auto y = Whole();
  double sum = 0, squares = 0;
  for (float x : y.v) sum += x, squares += double(x) * x;
  const double n = double(y.v.size());
  EXPECT_NEAR(sum / n, 0, 4 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 4 * 0.02 / std::sqrt(2 * n));
}

template <typename T>
void ExpectTheGeneratorsValues() {
  const StepState state{.seed = 7};
  auto y = Poison<T>({30, 20}), want = y;
  for (size_t i = 0; i < y.v.size(); ++i) {
    want.v[i] = T(Accumulate<T>(1 + 0.5 * trainyard::Normal(7, kStream, i)));
  }
  Call(RandomValuesArgs{
      .y = y, .stream = kStream, .scale = 0.5, .global_columns = 20, .state = &state, .mean = 1});
  ExpectClose(Converted<double>(y).v, Converted<double>(want).v, Tolerance(DTypeOf<T>::value, 1));
}

// Devices may differ in the last bit of a logarithm or a cosine.
TEST(RandomValues, HasTheValuesOfTheGeneratorOnAnyDevice) {
  ExpectTheGeneratorsValues<double>();
  ExpectTheGeneratorsValues<float>();
  ExpectTheGeneratorsValues<bf16>();
}

// A shard of rows has its part of the whole.
TEST(RandomValues, AreBytesIfAskedFor) {
  const StepState state{.seed = 7};
  auto y = Zeros<uint8_t>({30, 20});
  Call(RandomValuesArgs{.y = y,
                        .stream = kStream,
                        .distribution = Distribution::kBytes,
                        .global_columns = 24,
                        .state = &state,
                        .first_row = 5,
                        .first_column = 3});
  for (int64_t i = 0; i < 600; ++i) {
    const auto index = uint64_t((5 + i / 20) * 24 + 3 + i % 20);
    ASSERT_EQ(y.v[size_t(i)], RandomBits(7, kStream, index) >> 56) << i;
  }
}

// The ends of the interval lie `scale` from the mean; all of it is as likely.
TEST(RandomValues, AreUniformIfAskedFor) {
  const StepState state{.seed = 7};
  auto y = Poison<double>({300, 200});
  Call(RandomValuesArgs{.y = y,
                        .stream = kStream,
                        .distribution = Distribution::kUniform,
                        .scale = 0.5,
                        .global_columns = 200,
                        .state = &state,
                        .mean = 1});
  double sum = 0, squares = 0, least = 2, most = 0;
  for (size_t i = 0; i < y.v.size(); ++i) {
    EXPECT_EQ(y.v[i], 1 + 0.5 * (2 * Uniform(7, kStream, i) - 1));
    sum += y.v[i] - 1, squares += (y.v[i] - 1) * (y.v[i] - 1);
    least = std::min(least, y.v[i]), most = std::max(most, y.v[i]);
  }
  const double n = double(y.v.size()), deviation = 0.5 / std::sqrt(3.0);
  EXPECT_NEAR(sum / n, 0, 4 * deviation / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), deviation, 0.01);
  EXPECT_NEAR(least, 0.5, 1e-3);
  EXPECT_NEAR(most, 1.5, 1e-3);
}

TEST(RandomValues, AShardHoldsItsPartOfTheWhole) {
  const StepState state{.seed = 7};
  auto shard = Poison<float>({50, 30});
  Call(RandomValuesArgs{.y = shard,
                        .stream = kStream,
                        .scale = 0.02,
                        .global_columns = 200,
                        .state = &state,
                        .first_row = 100,
                        .first_column = 60});
  const auto whole = Whole();
  for (int64_t i = 0; i < 50 * 30; ++i) {
    EXPECT_EQ(shard.v[i], whole.v[(100 + i / 30) * 200 + 60 + i % 30]);
  }
}

TEST(RandomValues, SeedAndStreamChangeTheValues) {
  const auto whole = Whole();
  for (const auto& [seed, stream] : {std::pair{8ul, kStream}, {7ul, kStream + 1}}) {
    const StepState state{.seed = seed};
    auto y = Poison<float>({300, 200});
    Call(RandomValuesArgs{
        .y = y, .stream = stream, .scale = 0.02, .global_columns = 200, .state = &state});
    EXPECT_NE(y.v, whole.v);
  }
}

TEST(RandomValues, ThreadsDoNotChangeBits) { EXPECT_EQ(Whole(1).v, Whole(3).v); }

TEST(RandomValuesDeathTest, RejectsABoxOutsideTheWhole) {
  const StepState state;
  auto y = Zeros<float>({2, 30});
  EXPECT_DEATH(Call(RandomValuesArgs{.y = y,
                                     .stream = 1,
                                     .scale = 1,
                                     .global_columns = 40,
                                     .state = &state,
                                     .first_column = 20}),
               "random_values global_columns: 40, box of 30 columns from 20");
}

}  // namespace trainyard::testing::random_values
