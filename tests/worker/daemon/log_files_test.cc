// A rank's log is bounded on disk, and a reader that follows it sees every line once, over
// rotations.

#include "worker/daemon/log_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files.h"
#include "common/text.h"
#include "tests/worker/daemon/testing.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A copy, because the result of Read ends before a loop over its lines begins.
std::vector<std::string> LinesOf(LogReader& reader, const LogReader::Limits& limits) {
  const auto read = reader.Read(limits);
  CHECK(read.ok()) << read.status();
  return read->lines;
}

TEST(LogFilesTest, AReaderSeesEveryLineOnceOverRotations) {
  TemporaryDirectory directory;
  LogWriter writer(directory.path(), 64, 100);
  LogReader reader(directory.path(), 0);
  std::vector<std::string> written, read;
  for (int i = 0; i < 200; ++i) {
    written.push_back(absl::StrCat("line ", i));
    writer.Append(written.back() + "\n");
    if (i % 7 == 0) {
      for (const std::string& line : LinesOf(reader, {})) read.push_back(line);
    }
  }
  for (const std::string& line : LinesOf(reader, {})) read.push_back(line);
  EXPECT_EQ(read, written);
}

TEST(LogFilesTest, AtMostTheGivenFilesOfAboutTheGivenSizeStay) {
  TemporaryDirectory directory;
  LogWriter writer(directory.path(), 1000, 3);
  for (int i = 0; i < 1000; ++i) writer.Append(std::string(99, 'x') + "\n");
  const auto names = ListDirectory(directory.path());
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(names->size(), 3u);
  for (const std::string& name : *names) {
    EXPECT_LE(ReadFile(directory.path() + "/" + name)->size(), 2000u) << name;
  }
}

TEST(LogFilesTest, AReaderFarBehindSkipsAndSaysHowMuch) {
  TemporaryDirectory directory;
  LogWriter writer(directory.path(), 1 << 20, 4);
  for (int i = 0; i < 1000; ++i) writer.Append(absl::StrCat("line ", i, "\n"));
  LogReader reader(directory.path(), 0);
  const auto read = reader.Read({.bytes = 100, .backlog_bytes = 200});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_GT(read->skipped_bytes, 8000u);
  ASSERT_FALSE(read->lines.empty());
  EXPECT_EQ(read->lines.back(), "line 999");
}

TEST(LogFilesTest, AnUnfinishedLineWaitsForItsEnd) {
  TemporaryDirectory directory;
  LogWriter writer(directory.path(), 1 << 20, 4);
  LogReader reader(directory.path(), 0);
  writer.Append("one\ntw");
  EXPECT_THAT(LinesOf(reader, {}), ElementsAre("one"));
  EXPECT_THAT(LinesOf(reader, {}), IsEmpty());
  writer.Append("o\nthree");
  EXPECT_THAT(LinesOf(reader, {}), ElementsAre("two"));
  EXPECT_THAT(LinesOf(reader, {.with_partial_line = true}), ElementsAre("three"));
}

TEST(LogFilesTest, ALineWithoutEndDoesNotStopTheReader) {
  TemporaryDirectory directory;
  LogWriter writer(directory.path(), 1 << 20, 4);
  LogReader reader(directory.path(), 0);
  writer.Append(std::string(300, 'x'));
  writer.Append("\nnext\n");
  std::vector<std::string> lines;
  for (int i = 0; i < 10; ++i) {
    for (const auto& line : LinesOf(reader, {.bytes = 100})) lines.push_back(line);
  }
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back(), "next");
}

// Bug it must catch: half a character at a cut, which then is none, and spoils the whole message.
TEST(LogFilesTest, NoCutGoesThroughACharacter) {
  TemporaryDirectory directory;
  LogWriter writer(directory.path(), 1 << 20, 4);
  std::string line;
  while (line.size() < 100'000) line += "x\u00e4\u20ac\U0001F600";  // Of 1 to 4 bytes.
  LogReader reader(directory.path(), 0);
  writer.Append(line + "\n");
  std::vector<std::string> read;
  for (size_t bytes = 5'000; bytes < 5'010; ++bytes) {
    for (const auto& piece : LinesOf(reader, {.bytes = bytes})) read.push_back(piece);
  }
  for (const auto& piece : LinesOf(reader, {.bytes = 60'000})) read.push_back(piece);
  EXPECT_EQ(read.size(), 11u);
  for (const std::string& piece : read) EXPECT_EQ(ValidUtf8(piece), piece);
  for (size_t i = 0; i < 4; ++i) {
    writer.Append("x");
    writer.Append(line);
    EXPECT_EQ(ValidUtf8(writer.tail()), writer.tail());
  }
}

// Bug it must catch: a cut that goes back through bytes that begin no character, to the start.
TEST(LogFilesTest, BytesThatAreNoTextAreReadToTheirEnd) {
  TemporaryDirectory directory;
  LogWriter writer(directory.path(), 1 << 20, 4);
  LogReader reader(directory.path(), 0);
  writer.Append(absl::StrCat(std::string(50'000, '\x80'), "\nnext\n"));
  std::vector<std::string> lines;
  for (int i = 0; i < 4; ++i) {
    for (const auto& line : LinesOf(reader, {})) lines.push_back(line);
  }
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back(), "next");
}

TEST(LogFilesTest, AWriterGoesOnBehindWhatIsThere) {
  TemporaryDirectory directory;
  LogWriter(directory.path(), 1 << 20, 4).Append("one\n");
  LogWriter(directory.path(), 1 << 20, 4).Append("two\n");
  LogReader reader(directory.path(), 0);
  EXPECT_THAT(LinesOf(reader, {}), ElementsAre("one", "two"));
}

TEST(LogFilesTest, TheTailIsTheEndOfTheOutput) {
  TemporaryDirectory directory;
  LogWriter writer(directory.path(), 1 << 20, 4);
  writer.Append(std::string(5000, 'x'));
  writer.Append("last words");
  EXPECT_EQ(writer.tail().size(), 1024u);
  EXPECT_TRUE(writer.tail().ends_with("xlast words"));
}

}  // namespace
}  // namespace trainyard
