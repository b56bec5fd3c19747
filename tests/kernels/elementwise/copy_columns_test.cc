// Proves kernels/elementwise/copy_columns.h on the CPU: the columns named arrive, the others stay,
// bit for bit.

#include "kernels/elementwise/copy_columns.h"

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"

namespace trainyard::testing::copy_columns {

constexpr int64_t kRows = 1001, kFromColumns = 37, kToColumns = 29;

template <typename From, typename To>
void ExpectCopies(int64_t x_begin, int64_t y_begin, int64_t columns,
                  int64_t x_columns = kFromColumns, int64_t y_columns = kToColumns) {
  const auto x = Normal<From>({kRows, x_columns}, 1);
  auto y = Normal<To>({kRows, y_columns}, 2);
  auto want = y;
  for (int64_t i = 0; i < kRows * columns; ++i) {
    const int64_t t = i / columns, c = i % columns;
    want.v[t * y_columns + y_begin + c] = To(Accumulate<From>(x.v[t * x_columns + x_begin + c]));
  }
  Call(CopyColumnsArgs{.x = x, .x_begin = x_begin, .y = y, .y_begin = y_begin, .columns = columns});
  for (size_t i = 0; i < y.v.size(); ++i) {
    ASSERT_EQ(Accumulate<To>(y.v[i]), Accumulate<To>(want.v[i])) << "at " << i;
  }
}

template <typename From, typename To>
void ExpectCopiesAnyColumns() {
  ExpectCopies<From, To>(0, 0, kToColumns);
  ExpectCopies<From, To>(5, 3, 17);
  ExpectCopies<From, To>(kFromColumns - 1, kToColumns - 1, 1);
  // Where 16 bytes divide all, and where they do not divide one of the rows, of the beginnings, or
  // the columns.
  ExpectCopies<From, To>(16, 8, 32, 48, 64);
  ExpectCopies<From, To>(16, 8, 32, 49, 64);
  ExpectCopies<From, To>(16, 8, 32, 48, 65);
  ExpectCopies<From, To>(15, 8, 32, 48, 64);
  ExpectCopies<From, To>(16, 9, 32, 48, 64);
  ExpectCopies<From, To>(16, 8, 31, 48, 64);
}

TEST(CopyColumns, CopiesAndCastsTheColumnsAndLeavesTheOthers) {
  ExpectCopiesAnyColumns<double, double>();
  ExpectCopiesAnyColumns<double, bf16>();
  ExpectCopiesAnyColumns<float, float>();
  ExpectCopiesAnyColumns<float, bf16>();
  ExpectCopiesAnyColumns<bf16, float>();
  ExpectCopiesAnyColumns<bf16, bf16>();
}

TEST(CopyColumnsDeathTest, NamesTheRangeThatLeavesItsMatrix) {
  auto x = Zeros<float>({3, 4}), y = Zeros<float>({3, 2}), rows = Zeros<float>({2, 3});
  EXPECT_DEATH(Call(CopyColumnsArgs{.x = x, .x_begin = 3, .y = y, .y_begin = 0, .columns = 2}),
               "copy_columns x_begin: 2 columns from 3 of \\[3, 4\\]");
  EXPECT_DEATH(Call(CopyColumnsArgs{.x = x, .x_begin = 0, .y = y, .y_begin = 1, .columns = 2}),
               "copy_columns y_begin: 2 columns from 1 of \\[3, 2\\]");
  EXPECT_DEATH(Call(CopyColumnsArgs{.x = x, .x_begin = 0, .y = rows, .y_begin = 0, .columns = 2}),
               "copy_columns y: wanted f32 \\[3, 3\\]");
}

}  // namespace trainyard::testing::copy_columns
