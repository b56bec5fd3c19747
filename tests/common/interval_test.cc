// Proves that the words of a rule say what it holds, and that the number which it names as the
// nearest one is legal.

#include "common/interval.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trainyard {
namespace {

constexpr Interval kBeta = {.least = 0, .below = 1};
constexpr Interval kRate = {.above = 0, .most = 1e9};
constexpr Interval kDropout = {.least = 0, .most = 0.95, .zero = "none", .note = "usual: 0, 0.1"};
constexpr Interval kFactor = {.least = 1, .most = 1e6, .zero = "none"};

TEST(Interval, HoldsAnEndOnlyWhereItSaysSo) {
  EXPECT_TRUE(kBeta.Holds(0) && kBeta.Holds(0.9999999));
  EXPECT_FALSE(kBeta.Holds(1) || kBeta.Holds(-1e-300));
  EXPECT_TRUE(kRate.Holds(1e9) && kRate.Holds(1e-300));
  EXPECT_FALSE(kRate.Holds(0) || kRate.Holds(1.1e9));
  EXPECT_TRUE(kFactor.Holds(0) && kFactor.Holds(1));
  EXPECT_FALSE(kFactor.Holds(0.5));
  EXPECT_FALSE(kDropout.Holds(NAN));
}

TEST(Interval, IsWordedAsPeopleWriteIt) {
  EXPECT_EQ(kBeta.Words(), "0 <= x < 1");
  EXPECT_EQ(kRate.Words(), "0 < x <= 1e9");
  EXPECT_EQ(kDropout.Words(), "0 (none) <= x <= 0.95 (usual: 0, 0.1)");
  EXPECT_EQ(kFactor.Words(), "0 (none), or 1 <= x <= 1e6");
  EXPECT_EQ((Interval{.least = 1e-9, .most = 1e12}.Words()), "1e-9 <= x <= 1e12");
  EXPECT_EQ((Interval{.above = 0}.Words()), "0 < x");
  EXPECT_EQ((Interval{.least = 0, .most = 0, .zero = "none"}.Words()), "0 (none)");
}

TEST(Interval, NamesALegalNumberNearAnIllegalOne) {
  EXPECT_EQ(kDropout.Nearest(-1), "0");
  EXPECT_EQ(kDropout.Nearest(1), "0.95");
  EXPECT_EQ(kRate.Nearest(2e9), "1e9");
  EXPECT_EQ(kBeta.Nearest(1), "0.99");
  EXPECT_EQ(kFactor.Nearest(-1), "0");
  EXPECT_EQ(kFactor.Nearest(0.3), "0");
  EXPECT_EQ(kFactor.Nearest(0.8), "1");
  EXPECT_EQ(kFactor.Nearest(1e7), "1e6");
  EXPECT_EQ((Interval{.least = 0, .most = 0}.Nearest(2)), "0");
}

TEST(Interval, NamesNoNumberThatIsNotLegal) {
  EXPECT_EQ(kRate.Nearest(-1), "");
  EXPECT_EQ(kRate.Nearest(0), "");
  EXPECT_EQ(kRate.Nearest(NAN), "");
  EXPECT_EQ(kDropout.Nearest(NAN), "");
}

TEST(WholeNumbers, SayWhatTheyHold) {
  constexpr WholeNumbers kWidth = {.least = 2, .most = 256, .multiple = 2, .note = "usual: 64"};
  EXPECT_TRUE(kWidth.Holds(2) && kWidth.Holds(256));
  EXPECT_FALSE(kWidth.Holds(0) || kWidth.Holds(3) || kWidth.Holds(258));
  EXPECT_EQ(kWidth.Words(), "an even number from 2 to 256 (usual: 64)");
  EXPECT_EQ((WholeNumbers{.most = 8}.Words()), "1 to 8");
  EXPECT_EQ((WholeNumbers{.least = 4, .most = 64, .multiple = 4}.Words()),
            "a multiple of 4 from 4 to 64");
  EXPECT_EQ((WholeNumbers{.least = 0, .most = 0, .note = "without experts"}.Words()),
            "0 (without experts)");
  for (int64_t x = -5; x < 300; ++x) ASSERT_TRUE(kWidth.Holds(kWidth.Nearest(x))) << x;
  EXPECT_EQ(kWidth.Nearest(67), 66);
}

}  // namespace
}  // namespace trainyard
