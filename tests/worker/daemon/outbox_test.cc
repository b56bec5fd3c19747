// What must not be lost is sent again until acknowledged, in order, and memory stays bounded.

#include "worker/daemon/outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace trainyard {
namespace {

using ::testing::ElementsAre;

StepReport Step(uint64_t step) {
  StepReport report{{"job", 1, 0}, {}};
  report.step.step = step;
  return report;
}

std::vector<uint64_t> SendAll(Outbox& outbox) {
  std::vector<uint64_t> sequences;
  while (const auto next = outbox.Next(absl::ZeroDuration())) sequences.push_back(next->sequence);
  return sequences;
}

TEST(OutboxTest, SequencesGrowByOneAndEachIsSentOnce) {
  Outbox outbox;
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(outbox.Add(Step(i)), i);
  EXPECT_THAT(SendAll(outbox), ElementsAre(1, 2, 3));
  EXPECT_THAT(SendAll(outbox), ElementsAre());
}

TEST(OutboxTest, RewindSendsAgainWhatWasNotAcknowledged) {
  Outbox outbox;
  for (int i = 0; i < 4; ++i) outbox.Add(Step(i));
  SendAll(outbox);
  outbox.Acknowledge(2);
  EXPECT_EQ(outbox.num_reports(), 2u);
  outbox.Rewind();
  EXPECT_THAT(SendAll(outbox), ElementsAre(3, 4));
  outbox.Add(Step(9));
  EXPECT_THAT(SendAll(outbox), ElementsAre(5));
}

TEST(OutboxTest, AcknowledgingWhileSendingLosesNoPlace) {
  Outbox outbox;
  for (int i = 0; i < 4; ++i) outbox.Add(Step(i));
  EXPECT_EQ(outbox.Next(absl::ZeroDuration())->sequence, 1u);
  EXPECT_EQ(outbox.Next(absl::ZeroDuration())->sequence, 2u);
  outbox.Acknowledge(1);
  EXPECT_THAT(SendAll(outbox), ElementsAre(3, 4));
}

TEST(OutboxTest, NoticesGoFirstWithoutSequenceAndDieWithTheConnection) {
  Outbox outbox;
  outbox.Add(Step(1));
  outbox.Add(Draining{});
  EXPECT_THAT(SendAll(outbox), ElementsAre(0, 1));
  outbox.Add(Draining{});
  outbox.Rewind();
  EXPECT_THAT(SendAll(outbox), ElementsAre(1));
}

std::vector<std::string> LinesSent(Outbox& outbox) {
  std::vector<std::string> lines;
  while (const auto next = outbox.Next(absl::ZeroDuration())) {
    const auto* notice = std::get_if<Notice>(&next->message);
    if (notice == nullptr) continue;
    for (const LogRecord& line : std::get<LogReport>(*notice).lines) lines.push_back(line.text);
  }
  return lines;
}

LogReport Line(const std::string& text) {
  return {.job_id = "job", .lines = {{absl::UnixEpoch(), 1, 0, text}}};
}

// Bug it must catch: output that was on its way when the connection broke is nowhere.
TEST(OutboxTest, LogsThatMayNotHaveArrivedAreSentAgain) {
  Outbox outbox;
  outbox.Add(Line("before the step"));
  outbox.Add(Step(1));
  EXPECT_THAT(LinesSent(outbox), ElementsAre("before the step"));
  outbox.Add(Line("on its way"));
  EXPECT_THAT(LinesSent(outbox), ElementsAre("on its way"));
  outbox.Acknowledge(1);
  outbox.Add(Line("not sent"));
  outbox.Rewind();
  EXPECT_THAT(LinesSent(outbox),
              ElementsAre(::testing::HasSubstr("may be there twice"), "on its way", "not sent"));
  outbox.Add(Step(2));
  EXPECT_THAT(LinesSent(outbox), ElementsAre());
  outbox.Acknowledge(2);
  outbox.Rewind();
  EXPECT_THAT(LinesSent(outbox), ElementsAre());
}

// A report that is sent again after a line says of the line no more than on its first way.
TEST(OutboxTest, ALineHasArrivedWithTheReportBehindIt) {
  Outbox outbox;
  outbox.Add(Step(1));
  EXPECT_THAT(LinesSent(outbox), ElementsAre());
  outbox.Add(Line("behind the step"));
  EXPECT_THAT(LinesSent(outbox), ElementsAre("behind the step"));
  outbox.Acknowledge(1);
  outbox.Rewind();
  EXPECT_THAT(LinesSent(outbox), ElementsAre(::testing::_, "behind the step"));
}

// Bug it must catch: a bound that drops an exit, after which the controller waits for ever.
TEST(OutboxTest, TheOldestStepsGoBeyondTheBoundAndStatusesStay) {
  Outbox outbox(3);
  outbox.Add(RankStatus{{"job", 1, 0}, {}, 0, RankState::kExited});
  for (int i = 0; i < 4; ++i) outbox.Add(Step(i));
  EXPECT_EQ(outbox.dropped().steps, 2u);
  EXPECT_EQ(outbox.num_reports(), 3u);
  EXPECT_THAT(SendAll(outbox), ElementsAre(1, 4, 5));
}

// Bug it must catch: a place that goes below the first report, while none was sent for long.
TEST(OutboxTest, DroppingAStepThatIsTheNextKeepsThePlace) {
  Outbox outbox(3);
  for (int i = 0; i < 5; ++i) outbox.Add(Step(i));
  EXPECT_THAT(SendAll(outbox), ElementsAre(3, 4, 5));
  for (int i = 0; i < 2; ++i) outbox.Add(Step(i));
  EXPECT_THAT(SendAll(outbox), ElementsAre(6, 7));
}

TEST(OutboxTest, DroppingASentStepKeepsThePlace) {
  Outbox outbox(3);
  for (int i = 0; i < 3; ++i) outbox.Add(Step(i));
  EXPECT_EQ(outbox.Next(absl::ZeroDuration())->sequence, 1u);
  EXPECT_EQ(outbox.Next(absl::ZeroDuration())->sequence, 2u);
  outbox.Add(Step(3));
  EXPECT_THAT(SendAll(outbox), ElementsAre(3, 4));
}

// Bug it must catch: a flood of logs on a stalled stream that costs a gang its rendezvous.
TEST(OutboxTest, TheOldestLogsGoBeyondTheBoundAndOtherNoticesStay) {
  Outbox outbox;
  outbox.Add(RendezvousSet{{"job", 1, "key", "value"}});
  outbox.Add(RendezvousGet{{"job", 1, "key"}});
  outbox.Add(Draining{});
  for (int i = 0; i < 2000; ++i) {
    outbox.Add(LogReport{"job", {{absl::UnixEpoch(), 1, 0, std::to_string(i)}}});
  }
  std::vector<Notice> notices;
  while (const auto next = outbox.Next(absl::ZeroDuration())) {
    notices.push_back(std::get<Notice>(next->message));
  }
  ASSERT_EQ(notices.size(), 1000u);
  EXPECT_TRUE(std::holds_alternative<RendezvousSet>(notices[0]));
  EXPECT_TRUE(std::holds_alternative<RendezvousGet>(notices[1]));
  EXPECT_TRUE(std::holds_alternative<Draining>(notices[2]));
  EXPECT_EQ(std::get<LogReport>(notices.back()).lines[0].text, "1999");
  EXPECT_EQ(outbox.dropped().log_lines, 1003u);
}

TEST(OutboxTest, WakeEndsAWait) {
  Outbox outbox;
  std::thread waker([&] { outbox.Wake(); });
  EXPECT_FALSE(outbox.Next(absl::Minutes(1)).has_value());
  waker.join();
}

}  // namespace
}  // namespace trainyard
