// Proves what gRPC's work on a connection counts for: nothing if messages came of it, and what the
// bytes, the streams and the time were otherwise.

#include "controller/service/fruitless_work.h"

#include <gtest/gtest.h>

namespace trainyard::controller {
namespace {

using Bytes = FruitlessWork::Bytes;

class FruitlessWorkTest : public ::testing::Test {
 protected:
  absl::Duration After(absl::Duration time, const Bytes& bytes) {
    return work_.Of(bytes, now_ += time, time);
  }

  absl::Duration now_ = absl::Seconds(100);
  FruitlessWork work_;
};

TEST_F(FruitlessWorkTest, MessagesCostNothing) {
  Bytes bytes;
  absl::Duration sum;
  for (int i = 0; i < 1000; ++i) {
    bytes.read += 500;
    bytes.useful += 2'000;
    sum += After(absl::Milliseconds(5), bytes);
  }
  EXPECT_EQ(sum, absl::ZeroDuration());
}

// Bug it must catch: a large request costs its sender the connection.
TEST_F(FruitlessWorkTest, ARequestThatArrivesInPartsCostsNothingOnceItIsThere) {
  EXPECT_GT(After(absl::Milliseconds(5), {.read = 400'000}), absl::Milliseconds(1));
  EXPECT_LT(After(absl::Milliseconds(5), {.read = 1'000'000}), absl::Milliseconds(20));
  EXPECT_LT(After(absl::Milliseconds(5), {.read = 1'000'000, .useful = 1'002'000}),
            absl::Milliseconds(-5));
  EXPECT_FALSE(work_.HoldsTooMuch());
}

TEST_F(FruitlessWorkTest, BytesOfWhichNothingComesHaveAPrice) {
  const absl::Duration cost = After(absl::Milliseconds(5), {.read = 6'000'000});
  EXPECT_GT(cost, absl::Milliseconds(30));
  EXPECT_TRUE(work_.HoldsTooMuch());
}

// Bug it must catch: whoever reads a job's log for a day is cut off, because a reader says again
// and again how much it has read.
TEST_F(FruitlessWorkTest, ReadersOfLongAnswersAndPingsMayGoOnForEver) {
  Bytes bytes;
  for (int second = 0; second < 100'000; ++second) {
    bytes.sent += 1'000'000;
    bytes.read += 5'000;
    After(absl::Seconds(1), bytes);
  }
  EXPECT_FALSE(work_.HoldsTooMuch());
}

TEST_F(FruitlessWorkTest, StreamsWhoseCallsReachedAHandlerCostNothing) {
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(work_.Of({.started = i + 3, .ended = i}, {.begun = i + 3, .ended = i}),
              absl::ZeroDuration());
    EXPECT_EQ(work_.OfWaitingStreams(), absl::ZeroDuration());
  }
}

TEST_F(FruitlessWorkTest, StreamsThatComeToNothingCount) {
  const StreamCounts reset = {.started = 1'000, .ended = 1'000};
  work_.Of(reset, {});
  EXPECT_EQ(work_.Of(reset, {}), absl::Milliseconds(100));
  EXPECT_EQ(work_.Of(reset, {}), absl::ZeroDuration()) << "once";
}

// Bug it must catch: calls that end just when they are counted cost their caller the connection.
TEST_F(FruitlessWorkTest, AStreamThatEndsBeforeItsCallDoesNotCount) {
  const StreamCounts over = {.started = 50, .ended = 50};
  work_.Of(over, {.begun = 50, .ended = 20});
  EXPECT_EQ(work_.Of(over, {.begun = 50, .ended = 50}), absl::ZeroDuration());
}

TEST_F(FruitlessWorkTest, StreamsThatWaitForACallCountUntilItComes) {
  work_.Of({.started = 1'000, .ended = 0}, {.begun = 400});
  EXPECT_EQ(work_.OfWaitingStreams(), absl::Milliseconds(60));
  work_.Of({.started = 1'000, .ended = 0}, {.begun = 1'000});
  EXPECT_EQ(work_.OfWaitingStreams(), absl::ZeroDuration());
}

TEST_F(FruitlessWorkTest, StreamsThatStillWaitAtTheEndCameToNothing) {
  work_.Of({.started = 1'000, .ended = 100}, {.begun = 200, .ended = 100});
  EXPECT_EQ(work_.OfItsEnd(), absl::Milliseconds(80));
  EXPECT_EQ(work_.OfItsEnd(), absl::ZeroDuration()) << "once";
}

// Bug it must catch: who sent a request that is too large loses the connection with the answer.
TEST_F(FruitlessWorkTest, ARefusedRequestLiesInMemoryNoMore) {
  work_.Of({.started = 1, .ended = 0}, {});
  After(absl::Milliseconds(5), {.read = 2'000'000});
  work_.Of({.started = 1, .ended = 1}, {});
  EXPECT_FALSE(work_.HoldsTooMuch());
  After(absl::Milliseconds(5), {.read = 4'000'000});
  work_.Of({.started = 1, .ended = 1}, {});
  EXPECT_TRUE(work_.HoldsTooMuch()) << "half a header";
}

// Half a header: few bytes, and gRPC goes through all of them again with each frame.
TEST_F(FruitlessWorkTest, TimeCountsInWhichGrpcReadsNoFurther) {
  After(absl::Milliseconds(5), {.read = 0, .unread = 100'000});
  After(absl::Milliseconds(5), {.read = 64'000, .unread = 36'000});
  absl::Duration sum;
  for (int i = 0; i < 20; ++i) {
    sum += After(absl::Milliseconds(5), {.read = 64'000, .unread = 36'000});
  }
  EXPECT_GT(sum, absl::Milliseconds(80));
}

// Bug it must catch: a large request costs its sender the time between two reads of it.
TEST_F(FruitlessWorkTest, GrpcHasTimeToReadOn) {
  After(absl::Milliseconds(5), {.read = 0, .unread = 100'000});
  const Bytes half = {.read = 64'000, .unread = 36'000};
  After(absl::Milliseconds(5), half);
  EXPECT_LE(After(absl::Milliseconds(5), half), absl::ZeroDuration());
}

// Bug it must catch: who sends a large request pays for the flood beside which it arrives.
TEST_F(FruitlessWorkTest, WhatARequestWaitedForIsGivenBack) {
  After(absl::Milliseconds(5), {.read = 0, .unread = 2'000});
  absl::Duration sum = After(absl::Milliseconds(5), {.read = 100'000, .unread = 2'000});
  for (int i = 0; i < 20; ++i) {
    sum += After(absl::Milliseconds(5), {.read = 100'000, .unread = 2'000});
  }
  EXPECT_GT(sum, absl::Milliseconds(50));
  sum += After(absl::Milliseconds(5), {.read = 400'000, .useful = 402'000});
  EXPECT_LE(sum, absl::Milliseconds(5));
}

// Bug it must catch: a small call after a flood takes back what the flood owes.
TEST_F(FruitlessWorkTest, ASmallMessageGivesLittleBack) {
  After(absl::Milliseconds(5), {.read = 0, .unread = 2'000});
  absl::Duration sum = After(absl::Milliseconds(5), {.read = 100'000, .unread = 2'000});
  for (int i = 0; i < 20; ++i) {
    sum += After(absl::Milliseconds(5), {.read = 100'000, .unread = 2'000});
  }
  sum += After(absl::Milliseconds(5), {.read = 102'000, .useful = 2'000});
  EXPECT_GT(sum, absl::Milliseconds(80));
}

// Bug it must catch: a controller that was stopped, or has few of the processors, cuts off whoever
// sends a large request.
TEST_F(FruitlessWorkTest, TimeDoesNotCountInWhichNobodyHadAProcessor) {
  After(absl::Milliseconds(5), {.read = 0, .unread = 100'000});
  const Bytes half = {.read = 64'000, .unread = 36'000};
  After(absl::Milliseconds(5), half);
  After(absl::Milliseconds(10), half);
  EXPECT_LE(work_.Of(half, now_ += absl::Seconds(10), absl::Milliseconds(2)),
            absl::Milliseconds(2));
}

// Bug it must catch: a newcomer's buffer is so small that little is ever unread, and half a header
// of a megabyte, for which gRPC takes ten seconds, costs its bytes alone.
TEST_F(FruitlessWorkTest, TimeCountsHoweverLittleIsUnread) {
  After(absl::Milliseconds(5), {.read = 100'000, .unread = 160});
  absl::Duration sum;
  for (uint64_t i = 1; i <= 20; ++i) {
    const Bytes chunk = {.read = 100'000 + 2'000 * i, .unread = 160};
    for (int look = 0; look < 4; ++look) sum += After(absl::Milliseconds(5), chunk);
  }
  EXPECT_GT(sum, absl::Milliseconds(180));
}

// Bug it must catch: the victims of a flood are cut off, for gRPC does not come to them.
TEST_F(FruitlessWorkTest, WhoWaitsToBeReadOwesNothing) {
  absl::Duration sum;
  for (int i = 0; i < 20; ++i) sum += After(absl::Milliseconds(5), {.unread = 60'000});
  EXPECT_EQ(sum, absl::ZeroDuration()) << "a large request";
  for (int i = 0; i < 20; ++i) {
    sum += After(absl::Milliseconds(5), {.read = 300, .useful = 400, .unread = 300});
  }
  EXPECT_LE(sum, absl::ZeroDuration()) << "a small call after another";
}

TEST(DebtTest, IsForgivenAndHasABound) {
  Debt debt(0.05);
  debt.Add(absl::Hours(1), absl::Seconds(1));
  const absl::Duration most = debt.At(absl::Seconds(1));
  EXPECT_GT(most, absl::Milliseconds(100));
  EXPECT_EQ(debt.At(absl::Seconds(3)), most - absl::Milliseconds(100));
  EXPECT_EQ(debt.At(absl::Seconds(21)), absl::ZeroDuration());
  debt.Add(-absl::Seconds(1), absl::Seconds(21));
  EXPECT_EQ(debt.At(absl::Seconds(21)), absl::ZeroDuration()) << "nobody gains by good deeds";
}

TEST(DebtTest, WhatIsHeldIsNotForgiven) {
  Debt debt(0.05);
  debt.Hold(absl::Milliseconds(300));
  debt.Add(absl::Milliseconds(100), absl::Seconds(1));
  EXPECT_EQ(debt.At(absl::Seconds(100)), absl::Milliseconds(300));
  debt.Hold(-absl::Milliseconds(300));
  EXPECT_EQ(debt.At(absl::Seconds(100)), absl::ZeroDuration());
}

}  // namespace
}  // namespace trainyard::controller
