// Proves that a message names a bound only if the bound is the nearest legal value.

#include "common/interval.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trainyard {
namespace {

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
