// Proves kernels/sums/column_sum.h on the CPU against a plain sum in f64.

#include "kernels/sums/column_sum.h"

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::column_sum {

template <typename T>
void ExpectSums(int64_t rows, int64_t columns) {
  const auto x = Normal<T>({rows, columns}, 1);
  auto want = Zeros<double>({columns});
  for (int64_t i = 0; i < rows * columns; ++i) {
    want.v[i % columns] += double(Accumulate<T>(x.v[i]));
  }
  auto y = Poison<Accumulate<T>>({columns});
  Call(ColumnSumArgs{.x = x, .y = y, .write = Write::kOverwrite});
  const double tolerance = Tolerance(DTypeOf<Accumulate<T>>::value, rows);
  ExpectClose(Converted<double>(y).v, want.v, tolerance);
  Call(ColumnSumArgs{.x = x, .y = y, .write = Write::kAdd});
  for (double& value : want.v) value *= 2;
  ExpectClose(Converted<double>(y).v, want.v, tolerance);
}

TEST(ColumnSum, OverwritesThenAdds) {
  for (const auto& [rows, columns] :
       {std::pair{1, 1}, {3, 5}, {300, 131}, {129, 1000}, {700, 4104}}) {
    ExpectSums<double>(rows, columns);
    ExpectSums<float>(rows, columns);
    ExpectSums<bf16>(rows, columns);
  }
}

TEST(ColumnSum, ThreadsDoNotChangeBits) {
  const auto x = Normal<float>({301, 700}, 1);
  auto one = Poison<float>({700}), three = one;
  Call(ColumnSumArgs{.x = x, .y = one, .write = Write::kOverwrite}, 1);
  Call(ColumnSumArgs{.x = x, .y = three, .write = Write::kOverwrite}, 3);
  EXPECT_EQ(one.v, three.v);
}

// A single running f32 sum would lose the ones: 2^24 + 1 = 2^24.
TEST(ColumnSum, LongSumsStayAccurate) {
  const auto x = Filled<float>({(1 << 24) + 4096, 1}, 1);
  auto y = Poison<float>({1});
  Call(ColumnSumArgs{.x = x, .y = y, .write = Write::kOverwrite});
  EXPECT_EQ(y.v[0], float((1 << 24) + 4096));
}

TEST(ColumnSumDeathTest, NamesTheArgumentOfWrongShape) {
  auto x = Zeros<bf16>({3, 10}), y = Zeros<bf16>({10});
  EXPECT_DEATH(Call(ColumnSumArgs{.x = x, .y = y, .write = Write::kAdd}),
               "column_sum y: wanted f32 with 10 elements, got bf16 \\[10\\]");
}

}  // namespace trainyard::testing::column_sum
