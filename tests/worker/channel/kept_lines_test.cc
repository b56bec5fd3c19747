// The lines of a file that keeps reports: none that was damaged is believed, none that is missing
// goes unnoticed, and those of an earlier release are read.

#include "worker/channel/kept_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace trainyard::channel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string Line(uint64_t sequence) {
  Checkpoint checkpoint;
  checkpoint.step = 10 * sequence;
  checkpoint.path = "/data";
  return WithChecksum(Encode({checkpoint, sequence}));
}

// A line as the last release wrote it.
std::string Earlier(uint64_t step, uint64_t sequence = 0) {
  Checkpoint checkpoint;
  checkpoint.step = step;
  return absl::StrCat(Encode({checkpoint, sequence}), "\n");
}

struct Reading {
  std::vector<uint64_t> steps;
  LostLines lost;
};

Reading Read(absl::string_view text, bool earlier_numbered = false) {
  KeptLines lines(earlier_numbered);
  Reading reading;
  reading.lost = lines.Read(text, [&](const Message& message) {
    const auto* checkpoint = std::get_if<Checkpoint>(&message);
    reading.steps.push_back(checkpoint == nullptr ? 0 : checkpoint->step);
  });
  return reading;
}

TEST(KeptLinesTest, WhatWasWrittenIsRead) {
  const Reading reading = Read(Line(4) + Line(5) + Line(6));
  EXPECT_THAT(reading.steps, ElementsAre(40, 50, 60));
  EXPECT_EQ(reading.lost.damaged + reading.lost.missing, 0u);
}

TEST(KeptLinesTest, NoFlippedBitChangesWhatIsRead) {
  for (const bool alone : {true, false}) {
    const std::string good = alone ? Line(5) : Line(4) + Line(5) + Line(6);
    for (size_t byte = 0; byte < good.size(); ++byte) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string text = good;
        text[byte] = char(text[byte] ^ (1 << bit));
        const Reading reading = Read(text);
        SCOPED_TRACE(absl::StrCat("byte ", byte, " bit ", bit, " of ", good.size()));
        for (const uint64_t step : reading.steps) EXPECT_TRUE(step % 10 == 0 && step >= 40);
        const size_t lines = alone ? 1 : 3;
        if (reading.steps.size() == lines) continue;
        EXPECT_GT(reading.lost.damaged, 0u);  // A lost line break joins two lines into one.
      }
    }
  }
}

TEST(KeptLinesTest, AGapIsCountedOnce) {
  EXPECT_EQ(Read(Line(4) + Line(9)).lost.missing, 4u);
  EXPECT_EQ(Read(Line(4) + Line(9)).lost.damaged, 0u);
  const Reading reading = Read(Line(4) + "{\"damaged\n" + Line(9));
  EXPECT_EQ(reading.lost.damaged, 1u);
  EXPECT_EQ(reading.lost.missing, 3u) << "the damaged line was one of the four";
}

TEST(KeptLinesTest, AFileThatCannotBeReadIsNoGap) {
  KeptLines lines(/*earlier_numbered=*/false);
  const auto ignore = [](const Message&) {};
  lines.Read(Line(1), ignore);
  lines.SkipFile();
  lines.BeginFile();
  EXPECT_EQ(lines.Read(Line(9), ignore).missing, 0u) << "it is counted by itself";
  lines.BeginFile();
  EXPECT_EQ(lines.Read(Line(11), ignore).missing, 1u);
}

// What was acknowledged is gone from the front, and a trainer may say a line twice.
TEST(KeptLinesTest, AStartAndRepeatedLinesAreNoGap) {
  const Reading reading = Read(Line(7) + Line(8) + Line(7) + Line(8) + Line(9));
  EXPECT_EQ(reading.lost.missing, 0u);
  EXPECT_THAT(reading.steps, ElementsAre(70, 80, 70, 80, 90));
}

TEST(KeptLinesTest, ATornLastLineIsNoLoss) {
  std::string text = Line(1) + Line(2);
  text.resize(text.size() - 9);
  const Reading reading = Read(text);
  EXPECT_THAT(reading.steps, ElementsAre(10));
  EXPECT_EQ(reading.lost.damaged + reading.lost.missing, 0u);
}

TEST(KeptLinesTest, LinesOfTheLastReleaseAreRead) {
  EXPECT_THAT(Read(Earlier(1) + Earlier(2)).steps, ElementsAre(1, 2));
  EXPECT_THAT(Read(Earlier(1, 1) + Earlier(2, 2), /*earlier_numbered=*/true).steps,
              ElementsAre(1, 2));
  EXPECT_EQ(Read(Earlier(1) + "{\"damaged\n" + Earlier(2)).lost.damaged, 1u);
}

// A file is of one release, so that a line cannot lose its checksum.
TEST(KeptLinesTest, ALineWithoutAChecksumAmongOthersIsDamaged) {
  for (const bool earlier_numbered : {false, true}) {
    const Reading reading = Read(Line(1) + Earlier(20, 2) + Line(3), earlier_numbered);
    EXPECT_THAT(reading.steps, ElementsAre(10, 30));
    EXPECT_EQ(reading.lost.damaged, 1u);
  }
  EXPECT_THAT(Read(Earlier(20, 2)).steps, IsEmpty()) << "the last release numbered no such line";
}

// The last release reads what this one writes, since an upgrade may be undone.
TEST(KeptLinesTest, ALineIsStillOneOfTheLocalSocket) {
  const std::string line = Line(3);
  const auto envelope = Decode(absl::string_view(line).substr(0, line.size() - 1));
  ASSERT_TRUE(envelope.ok()) << envelope.status();
  EXPECT_EQ(envelope->sequence, 3u);
  EXPECT_EQ(std::get<Checkpoint>(envelope->message).step, 30u);
}

}  // namespace
}  // namespace trainyard::channel
