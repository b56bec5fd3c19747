// Proves kernels/elementwise/add_bias.h on the CPU against its definition, bit for bit.

#include "kernels/elementwise/add_bias.h"

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"

namespace trainyard::testing::add_bias {

template <typename T>
void ExpectAddsToEachRow(int64_t rows, int64_t columns) {
  using A = Accumulate<T>;
  auto x = Normal<T>({rows, columns}, 1);
  const auto bias = Normal<T>({columns}, 2);
  auto y = Poison<T>(x.shape);
  Call(AddBiasArgs{.x = x, .bias = bias, .y = y});
  for (int64_t i = 0; i < rows * columns; ++i) {
    ASSERT_EQ(A(y.v[i]), A(T(A(x.v[i]) + A(bias.v[i % columns]))));
  }
  Call(AddBiasArgs{.x = x, .bias = bias, .y = x});
  for (int64_t i = 0; i < rows * columns; ++i) ASSERT_EQ(A(x.v[i]), A(y.v[i]));
}

TEST(AddBias, AddsToEachRowAndMayWorkInPlace) {
  for (const auto& [rows, columns] : {std::pair{1, 1}, {3, 5}, {300, 131}, {70, 128}}) {
    ExpectAddsToEachRow<double>(rows, columns);
    ExpectAddsToEachRow<float>(rows, columns);
    ExpectAddsToEachRow<bf16>(rows, columns);
  }
}

TEST(AddBiasDeathTest, NamesTheArgumentOfWrongShape) {
  auto x = Zeros<float>({3, 4}), bias = Zeros<float>({3}), y = Zeros<float>({4, 3});
  EXPECT_DEATH(Call(AddBiasArgs{.x = x, .bias = bias, .y = x}),
               "add_bias bias: wanted f32 with 4 elements");
  bias = Zeros<float>({4});
  EXPECT_DEATH(Call(AddBiasArgs{.x = x, .bias = bias, .y = y}),
               "add_bias y: wanted f32 \\[3, 4\\]");
}

}  // namespace trainyard::testing::add_bias
