// Proves that an interval is read as it is written, and that a message names a bound only if the
// bound is the nearest legal value.

#include "common/interval.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trainyard {
namespace {

TEST(IsWithin, TakesABoundOnlyWhereTheIntervalHasIt) {
  EXPECT_TRUE(IsWithin("0 <= x < 1", 0) && IsWithin("0 <= x < 1", 0.9999999));
  EXPECT_FALSE(IsWithin("0 <= x < 1", 1) || IsWithin("0 <= x < 1", -1e-300));
  EXPECT_TRUE(IsWithin("0 < x <= 1e9", 1e9) && IsWithin("0 < x <= 1e9", 1e-300));
  EXPECT_FALSE(IsWithin("0 < x <= 1e9", 0) || IsWithin("0 < x <= 1e9", 1.1e9));
  EXPECT_FALSE(IsWithin("0 <= x <= 1", NAN));
}

TEST(IsWithinDeathTest, RefusesWhatIsNoInterval) {
  EXPECT_DEATH(IsWithin("at least 0", 1), "no interval: at least 0");
  EXPECT_DEATH(IsWithin("0 <= x < 1 (usual: 0.9)", 1), "no interval");
}

TEST(NearestBound, IsThatOfAClosedInterval) {
  constexpr char kDropout[] = "0 (none) <= x <= 0.95 (usual: 0, 0.1)";
  EXPECT_EQ(NearestBound(kDropout, -1), "0");
  EXPECT_EQ(NearestBound(kDropout, 1), "0.95");
  EXPECT_EQ(NearestBound("1 <= x <= 1e12", 1e13), "1e12");
  EXPECT_EQ(NearestBound("0 < x <= 1e6, more than another", 2e6), "1e6");
}

TEST(NearestBound, IsAbsentIfItIsNotLegalOrNotKnown) {
  EXPECT_EQ(NearestBound("0 < x <= 1 (usual: 0.5)", -1), "");
  EXPECT_EQ(NearestBound("0 <= x < 1", 1), "");
  EXPECT_EQ(NearestBound("0 (none), or 1 <= x <= 1e6", -1), "");
  EXPECT_EQ(NearestBound("none, since this family has no rotary positions", 2), "");
  EXPECT_EQ(NearestBound("0 <= x <= 1", NAN), "");
}

}  // namespace
}  // namespace trainyard
