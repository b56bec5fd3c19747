// Which ranks are found to hang, when, and for what reason; and which are not.

#include "worker/daemon/liveness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard {
namespace {

using channel::Patience;
using channel::Progress;
using ::testing::HasSubstr;

// Polled every second, as long as it heard the heartbeat given for that second; how many seconds
// until it is found to hang, or the most that were tried.
constexpr int kMost = 10'000;
template <typename Beat>
int SecondsUntilFound(Liveness& liveness, Beat beat, std::string& reason) {
  for (int second = 1; second < kMost; ++second) {
    if (const std::optional<Progress> heard = beat(second)) liveness.Heard(*heard);
    if (const auto found = liveness.Poll(absl::Seconds(1))) {
      reason = *found;
      return second;
    }
  }
  return kMost;
}

std::optional<Progress> Beat(const char* phase, int count, bool waiting = false) {
  return Progress{.phase = phase, .step = 12, .count = uint64_t(count), .waiting = waiting};
}

class LivenessTest : public ::testing::Test {
 protected:
  const Patience patience_{absl::Seconds(600)};
  Liveness liveness_{patience_};
  std::string reason_;
};

TEST_F(LivenessTest, ARankThatGetsOnIsLeftAlone) {
  EXPECT_EQ(SecondsUntilFound(
                liveness_, [](int s) { return Beat("step", s / 500); }, reason_),
            kMost);
}

// Bug it must catch: an endless loop, beside which the thread that beats goes on.
TEST_F(LivenessTest, HeartbeatsWithoutProgressDoNotHelp) {
  EXPECT_EQ(SecondsUntilFound(
                liveness_, [](int) { return Beat("data", 7); }, reason_),
            600);
  EXPECT_EQ(reason_, "no progress for 10m in step 12, phase data");
}

TEST_F(LivenessTest, StartingAndCheckpointsHaveThreeTimesAsLong) {
  EXPECT_EQ(SecondsUntilFound(
                liveness_, [](int) { return Beat("checkpoint", 7); }, reason_),
            1800);
  Liveness never_heard_of(patience_);
  const auto nothing = [](int) { return std::optional<Progress>(); };
  EXPECT_EQ(SecondsUntilFound(never_heard_of, nothing, reason_), 1800);
  EXPECT_EQ(reason_, "no progress for 30m in phase starting");
}

TEST_F(LivenessTest, AProcessThatStandsStillIsFoundSoonerWhateverItDid) {
  for (const bool waiting : {false, true}) {
    Liveness liveness(patience_);
    const auto stops = [&](int s) {
      return s <= 100 ? Beat("checkpoint", s, waiting) : std::nullopt;
    };
    EXPECT_EQ(SecondsUntilFound(liveness, stops, reason_), 159);
    EXPECT_THAT(reason_, HasSubstr("step 12, phase checkpoint; no heartbeat for 1m"));
  }
}

// Bug it must catch: the ranks that wait for the one that hangs are taken for the culprits.
TEST_F(LivenessTest, ARankThatWaitsForItsPeersIsNotTheOneThatHangs) {
  EXPECT_EQ(SecondsUntilFound(
                liveness_, [](int) { return Beat("step", 7, true); }, reason_),
            kMost);
}

// Bug it must catch: a daemon that was stopped wakes up and kills all that it had not heard of.
TEST_F(LivenessTest, ThePauseOfTheDaemonIsNotTheRanks) {
  liveness_.Heard(*Beat("step", 1));
  EXPECT_FALSE(liveness_.Poll(absl::Hours(1)));
}

// Bug it must catch: a patience so short that a rank hangs whenever it waits for a core.
TEST(Patience, SeveralHeartbeatsMustBeMissingHoweverShortItIs) {
  EXPECT_EQ(Patience(absl::Seconds(2)).Silence(), absl::Seconds(5));
  EXPECT_EQ(Patience(absl::Minutes(10)).Silence(), absl::Minutes(1));
}

TEST(Patience, PeersAreWaitedForLongerThanAnyoneMayTake) {
  const Patience patience(absl::Minutes(2));
  for (const char* phase : {"starting", "data", "step", "validation", "checkpoint"}) {
    EXPECT_GT(patience.ForPeers(), patience.Of(phase)) << phase;
  }
}

}  // namespace
}  // namespace trainyard
