// Proves kernels/experts/expert_order.h on the CPU against a stable sort.

#include "kernels/experts/expert_order.h"

#include <numeric>

#include "gtest/gtest.h"
#include "tests/kernels/call.h"
#include "tests/testing/array.h"

namespace trainyard::testing::expert_order {

struct Size {
  int64_t t, k, e;
};

class ExpertOrderTest : public ::testing::TestWithParam<Size> {};

TEST_P(ExpertOrderTest, IsTheStableSortAndItsInverse) {
  const auto [t, k, e] = GetParam();
  const auto experts = Indices({t, k}, int32_t(e), 1);
  auto counts = Filled<int32_t>({e}, -7), order = Filled<int32_t>({t * k}, -7);
  auto place = Filled<int32_t>({t, k}, -7), offsets = Filled<int32_t>({e + 1}, -7);
  const ExpertOrderArgs args{.experts = experts, .counts = counts, .order = order, .place = place};
  Call(args);
  EXPECT_EQ(offsets.v.front(), -7);
  ExpertOrderArgs with_offsets = args;
  with_offsets.offsets = offsets;
  Call(with_offsets);

  std::vector<int32_t> want(size_t(t * k));
  std::iota(want.begin(), want.end(), 0);
  std::stable_sort(want.begin(), want.end(), [&](int32_t a, int32_t b) {
    return experts.v[size_t(a)] < experts.v[size_t(b)];
  });
  EXPECT_EQ(order.v, want);
  for (int32_t i = 0; i < int32_t(want.size()); ++i) {
    EXPECT_EQ(place.v[size_t(want[size_t(i)])], i);
  }
  for (int32_t expert = 0; expert < int32_t(e); ++expert) {
    EXPECT_EQ(counts.v[size_t(expert)], std::count(experts.v.begin(), experts.v.end(), expert));
  }
  for (int32_t expert = 0; expert <= int32_t(e); ++expert) {
    EXPECT_EQ(offsets.v[size_t(expert)], std::count_if(experts.v.begin(), experts.v.end(),
                                                       [&](int32_t x) { return x < expert; }));
  }
}

// The last has experts that nobody chose.
INSTANTIATE_TEST_SUITE_P(Sizes, ExpertOrderTest,
                         ::testing::Values(Size{1, 1, 1}, Size{7, 1, 3}, Size{50, 2, 8},
                                           Size{300, 8, 64}, Size{700, 6, 300}, Size{2048, 4, 5},
                                           Size{34'000, 4, 16}, Size{3, 2, 40}));

TEST(ExpertOrderDeathTest, NamesAnExpertOutOfRangeAndAWrongShape) {
  auto counts = Zeros<int32_t>({3}), order = Zeros<int32_t>({2}), place = Zeros<int32_t>({1, 2});
  const auto run = [&](const Array<int32_t>& experts) {
    Call(ExpertOrderArgs{.experts = experts, .counts = counts, .order = order, .place = place});
  };
  EXPECT_DEATH(run({{1, 2}, {2, 3}}), "expert_order experts: expert 3 at 1 of 3");
  EXPECT_DEATH(run({{1, 2}, {-1, 0}}), "expert -1 at 0");
  EXPECT_DEATH(run({{1, 3}, {0, 0, 0}}), "expert_order order: wanted i32 with 3 elements");
}

}  // namespace trainyard::testing::expert_order
