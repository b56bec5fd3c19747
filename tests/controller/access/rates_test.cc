// Proves that each caller has a rate of its own.

#include "controller/access/rates.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/testing/fake_clock.h"

namespace trainyard::controller {
namespace {

int Taken(Rates& rates, const std::string& caller, int calls) {
  int taken = 0;
  for (int i = 0; i < calls; ++i) taken += rates.Take(caller).ok();
  return taken;
}

TEST(Rates, OneWhoCallsWithoutEndTakesNothingFromOthers) {
  FakeClock clock;
  Rates rates(clock);
  EXPECT_EQ(Taken(rates, "greedy", 1000), kCallsAtOnce);
  EXPECT_EQ(Taken(rates, "modest", 10), 10);
  const absl::Status refused = rates.Take("greedy");
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_NE(refused.message().find("greedy"), std::string::npos);
}

TEST(Rates, WhatIsAllowedComesBackWithTimeAndNeverExceedsItsBound) {
  FakeClock clock;
  Rates rates(clock);
  EXPECT_EQ(Taken(rates, "a", 1000), kCallsAtOnce);
  clock.Advance(absl::Seconds(1));
  EXPECT_EQ(Taken(rates, "a", 1000), kCallsPerSecond);
  clock.Advance(absl::Hours(1));
  EXPECT_EQ(Taken(rates, "a", 1000), kCallsAtOnce);
}

// All machines of a fleet may join with one token.
TEST(Rates, OfWhatCostsLessThereMayBeMore) {
  FakeClock clock;
  Rates rates(clock);
  int taken = 0;
  while (taken < 1'000'000 && rates.Take("rack", kJoinCost).ok()) ++taken;
  EXPECT_NEAR(taken, kCallsAtOnce / kJoinCost, 1);
}

TEST(Rates, CallersWhoRestAreForgotten) {
  FakeClock clock;
  Rates rates(clock);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(rates.Take(absl::StrCat(i)).ok());
  EXPECT_EQ(rates.size(), 1000U);
  clock.Advance(absl::Seconds(10));
  EXPECT_TRUE(rates.Take("one").ok());
  EXPECT_EQ(rates.size(), 1U);
}

}  // namespace
}  // namespace trainyard::controller
