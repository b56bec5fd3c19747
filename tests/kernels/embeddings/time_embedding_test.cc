// Proves kernels/embeddings/time_embedding.h against its formula.

#include "kernels/embeddings/time_embedding.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/kernels/call.h"
#include "tests/testing/array.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::time_embedding {

template <typename T>
void ExpectFormula(int64_t width) {
  const Array<int32_t> time = {{3}, {0, 7, 999}};
  auto y = Poison<T>({3, width});
  Call(TimeEmbeddingArgs{.time = time, .y = y});
  const int64_t half = width / 2;
  for (int64_t b = 0; b < 3; ++b) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = time.v[size_t(b)] * std::exp(-std::log(1e4) * double(i) / (half - 1));
      const auto at = [&](int64_t column) {
        return double(Accumulate<T>(y.v[size_t(b * width + column)]));
      };
      // f64 of two libraries differ by a few roundings of the angle.
      const double tolerance = std::max(Epsilon(DTypeOf<T>::value), 1e-12);
      EXPECT_NEAR(at(i), std::cos(angle), tolerance);
      EXPECT_NEAR(at(half + i), std::sin(angle), tolerance);
    }
  }
}

TEST(TimeEmbedding, CosinesThenSinesOfFallingFrequencies) {
  for (const int64_t width : {4, 10, 256}) {
    ExpectFormula<double>(width);
    ExpectFormula<float>(width);
    ExpectFormula<bf16>(width);
  }
}

TEST(TimeEmbeddingDeathTest, NamesTheArgumentOfWrongShape) {
  const Array<int32_t> time = {{3}, {0, 7, 999}};
  auto odd = Zeros<float>({3, 5}), few = Zeros<float>({2, 4});
  EXPECT_DEATH(Call(TimeEmbeddingArgs{.time = time, .y = odd}), "time_embedding y: width 5");
  EXPECT_DEATH(Call(TimeEmbeddingArgs{.time = time, .y = few}),
               "time_embedding time: wanted i32 with 2 elements");
}

}  // namespace trainyard::testing::time_embedding
