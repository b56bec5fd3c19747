// Proves kernels/random_normal.h on the CPU: values depend on the global index alone, so a shard
// holds exactly its part of the whole; mean and deviation are as asked.

#include "kernels/random_normal.h"

#include <cmath>

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing {
namespace {

constexpr uint64_t kStream = HashName("model.layers.0.mlp.up_proj.weight");

Array<float> Whole(int threads = 2) {
  const StepState state{.seed = 7};
  auto y = Poison<float>({300, 200});
  Call(
      RandomNormalArgs{
          .y = y, .stream = kStream, .stddev = 0.02, .global_columns = 200, .state = &state},
      threads);
  return y;
}

TEST(RandomNormal, HasTheMeanAndDeviationAskedFor) {
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
  Call(RandomNormalArgs{
      .y = y, .stream = kStream, .stddev = 0.5, .global_columns = 20, .state = &state, .mean = 1});
  ExpectClose(Converted<double>(y).v, Converted<double>(want).v, Tolerance(DTypeOf<T>::value, 1));
}

// Devices may differ in the last bit of a logarithm or a cosine.
TEST(RandomNormal, HasTheValuesOfTheGeneratorOnAnyDevice) {
  ExpectTheGeneratorsValues<double>();
  ExpectTheGeneratorsValues<float>();
  ExpectTheGeneratorsValues<bf16>();
}

TEST(RandomNormal, AShardHoldsItsPartOfTheWhole) {
  const StepState state{.seed = 7};
  auto shard = Poison<float>({50, 30});
  Call(RandomNormalArgs{.y = shard,
                        .stream = kStream,
                        .stddev = 0.02,
                        .global_columns = 200,
                        .state = &state,
                        .first_row = 100,
                        .first_column = 60});
  const auto whole = Whole();
  for (int64_t i = 0; i < 50 * 30; ++i) {
    EXPECT_EQ(shard.v[i], whole.v[(100 + i / 30) * 200 + 60 + i % 30]);
  }
}

TEST(RandomNormal, SeedAndStreamChangeTheValues) {
  const auto whole = Whole();
  for (const auto& [seed, stream] : {std::pair{8ul, kStream}, {7ul, kStream + 1}}) {
    const StepState state{.seed = seed};
    auto y = Poison<float>({300, 200});
    Call(RandomNormalArgs{
        .y = y, .stream = stream, .stddev = 0.02, .global_columns = 200, .state = &state});
    EXPECT_NE(y.v, whole.v);
  }
}

TEST(RandomNormal, ThreadsDoNotChangeBits) { EXPECT_EQ(Whole(1).v, Whole(3).v); }

TEST(RandomNormalDeathTest, RejectsABoxOutsideTheWhole) {
  const StepState state;
  auto y = Zeros<float>({2, 30});
  EXPECT_DEATH(Call(RandomNormalArgs{.y = y,
                                     .stream = 1,
                                     .stddev = 1,
                                     .global_columns = 40,
                                     .state = &state,
                                     .first_column = 20}),
               "random_normal global_columns: 40, box of 30 columns from 20");
}

}  // namespace
}  // namespace trainyard::testing
