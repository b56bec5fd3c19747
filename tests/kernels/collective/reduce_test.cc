// Proves that sums are taken from left to right, bf16 in f32 with one rounding.

#include "kernels/collective/reduce.h"

#include <gmock/gmock.h>

#include <vector>

namespace trainyard {
namespace {

TEST(SumInRankOrder, GoesFromLeftToRight) {
  const float big[] = {1e8f}, small[] = {1.0f}, minus[] = {-1e8f};
  float sum[1];
  SumInRankOrder(std::vector<const void*>{big, small, minus}, DType::kF32, 1, sum);
  EXPECT_EQ(sum[0], (1e8f + 1.0f) - 1e8f);  // 0: the 1 is lost.
  SumInRankOrder(std::vector<const void*>{big, minus, small}, DType::kF32, 1, sum);
  EXPECT_EQ(sum[0], 1.0f);
}

TEST(SumInRankOrder, AddsBf16InF32AndRoundsOnce) {
  // 256 + 1 is no bf16; rounded at each step the ones would be lost.
  const bf16 parts[] = {256.0f, 1.0f, 1.0f};
  bf16 sum;
  SumInRankOrder(std::vector<const void*>{&parts[0], &parts[1], &parts[2]}, DType::kBF16, 1, &sum);
  EXPECT_EQ(float(sum), 258.0f);
}

TEST(SumInRankOrder, MayWriteToOneOfItsPartsAcrossManyBlocks) {
  std::vector<int64_t> a(5000), b(5000);
  for (int64_t i = 0; i < 5000; ++i) a[size_t(i)] = i, b[size_t(i)] = 10 * i;
  SumInRankOrder(std::vector<const void*>{a.data(), b.data()}, DType::kI64, 5000, b.data());
  for (int64_t i = 0; i < 5000; ++i) ASSERT_EQ(b[size_t(i)], 11 * i);
}

template <typename T>
void ExpectLargest() {
  const T a[] = {1, -5}, b[] = {0, -2};
  T largest[2];
  MaxInRankOrder(std::vector<const void*>{a, b}, DTypeOf<T>::value, 2, largest);
  EXPECT_THAT(largest, ::testing::ElementsAre(T(1), T(-2)));
}

TEST(MaxInRankOrder, TakesTheLargestOfEachElement) {
  ExpectLargest<double>();
  ExpectLargest<float>();
  ExpectLargest<int64_t>();
}

TEST(SumInRankOrderDeathTest, RefusesI32) {
  const int32_t part = 1;
  int32_t sum;
  EXPECT_DEATH(SumInRankOrder(std::vector<const void*>{&part}, DType::kI32, 1, &sum), "i32");
}

}  // namespace
}  // namespace trainyard
