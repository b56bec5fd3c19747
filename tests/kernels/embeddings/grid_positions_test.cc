// Proves kernels/embeddings/grid_positions.h against its formula, on the rows of each rank that
// shares out a sequence.

#include "kernels/embeddings/grid_positions.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/kernels/call.h"
#include "tests/testing/array.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::grid_positions {

// Of the patch in (row, column).
double Formula(int64_t row, int64_t column, int64_t width, int64_t d) {
  const int64_t quarter = width / 4, half = 2 * quarter;
  const double place = double(d < half ? column : row);
  const int64_t i = d % quarter;
  const double angle = place * std::exp(-std::log(1e4) * double(i) / double(quarter));
  return d % half < quarter ? std::sin(angle) : std::cos(angle);
}

template <typename T>
void ExpectFormula(int64_t columns, int64_t width, const SequencePart& part, int64_t first_row) {
  const int64_t rows = 2 * part.rows - first_row;  // To the end of the second sample.
  auto y = Poison<T>({rows, width});
  Call(GridPositionsArgs{.y = y, .columns = columns, .part = part, .first_row = first_row});
  for (int64_t t = 0; t < rows; ++t) {
    const int64_t p = part.position((first_row + t) % part.rows);
    for (int64_t d = 0; d < width; ++d) {
      EXPECT_NEAR(double(Accumulate<T>(y.v[size_t(t * width + d)])),
                  Formula(p / columns, p % columns, width, d),
                  std::max(Epsilon(DTypeOf<T>::value), 1e-12));
    }
  }
}

TEST(GridPositions, ColumnsThenRowsOfTheGrid) {
  ExpectFormula<double>(4, 8, {.rows = 12}, 0);
  ExpectFormula<double>(3, 20, {.rows = 9}, 4);
  ExpectFormula<float>(16, 64, {.rows = 256}, 0);
  ExpectFormula<bf16>(16, 64, {.rows = 256}, 128);
}

TEST(GridPositions, OfARankOfTheSequenceAreItsOwn) {
  for (int64_t rank = 0; rank < 3; ++rank) {
    ExpectFormula<double>(6, 8, {.rows = 12, .ranks = 3, .rank = rank}, 6);
  }
}

TEST(GridPositionsDeathTest, NamesTheArgumentOfWrongShape) {
  auto y = Zeros<float>({4, 6}), right = Zeros<float>({4, 8});
  EXPECT_DEATH(Call(GridPositionsArgs{.y = y, .columns = 2, .part = {.rows = 4}}),
               "grid_positions y: width 6");
  EXPECT_DEATH(Call(GridPositionsArgs{.y = right, .columns = 0, .part = {.rows = 4}}),
               "grid_positions columns: 0");
}

}  // namespace trainyard::testing::grid_positions
