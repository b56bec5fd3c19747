// Proves that a clock that leaps is not believed at once, and that one that was set right is.

#include "controller/book/believed_time.h"

#include <gtest/gtest.h>

#include "tests/testing/fake_clock.h"

namespace trainyard::controller {
namespace {

constexpr absl::Duration kYear = absl::Hours(24 * 365);

TEST(BelievedTime, FollowsAClockThatRuns) {
  FakeClock clock;
  BelievedTime time(clock);
  for (int i = 0; i < 100; ++i) {
    clock.Advance(absl::Hours(7));
    clock.JumpWall(absl::Milliseconds(i % 2 == 0 ? 30'000 : -30'000));  // As NTP does.
    EXPECT_EQ(time.Now(), clock.Now());
  }
}

// Bug it must catch: a clock past 2054, for one submit.
TEST(BelievedTime, DoesNotFollowALeapForAMoment) {
  for (const absl::Duration leap : {40 * kYear, 170 * kYear, -53 * kYear, absl::Minutes(2)}) {
    FakeClock clock;
    BelievedTime time(clock);
    const absl::Time before = clock.Now();
    clock.JumpWall(leap);
    clock.Advance(absl::Minutes(1));
    EXPECT_EQ(time.Now(), before + absl::Minutes(1)) << leap;
    clock.JumpWall(-leap);
    clock.Advance(absl::Minutes(30));
    EXPECT_EQ(time.Now(), clock.Now()) << leap;
  }
}

TEST(BelievedTime, BelievesWhatHolds) {
  FakeClock clock;
  BelievedTime time(clock);
  clock.JumpWall(10 * kYear);
  EXPECT_NE(time.Now(), clock.Now());
  clock.Advance(absl::Minutes(9));
  EXPECT_NE(time.Now(), clock.Now());
  clock.Advance(absl::Minutes(2));
  EXPECT_EQ(time.Now(), clock.Now());
}

// Bug it must catch: a machine that slept for an hour takes its clock's right time for a leap.
TEST(BelievedTime, GoesOnWhileTheMachineSleeps) {
  FakeClock clock;
  absl::Duration asleep;
  const BelievedTime time(clock, [&] { return asleep; });
  asleep = absl::Hours(1);
  clock.JumpWall(absl::Hours(1));
  EXPECT_EQ(time.Now(), clock.Now());
}

TEST(BelievedTime, BelievesNoClockThatLeapsAgainAndAgain) {
  FakeClock clock;
  BelievedTime time(clock);
  const absl::Time before = clock.Now();
  for (int i = 1; i <= 20; ++i) {
    clock.JumpWall(i % 2 == 0 ? kYear : 2 * kYear);
    clock.Advance(absl::Minutes(9));
    EXPECT_EQ(time.Now(), before + i * absl::Minutes(9));
  }
}

}  // namespace
}  // namespace trainyard::controller
