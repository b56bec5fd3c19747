// Proves that text made valid is, changing no more than the bytes at fault, and that cutting never
// splits a character.

#include "common/text.h"

#include <gtest/gtest.h>

#include <iterator>

namespace trainyard {
namespace {

TEST(ValidUtf8, KeepsCharactersOfEveryLength) {
  const std::string first("\0 \xC2\x80 \xE0\xA0\x80 \xEE\x80\x80 \xF0\x90\x80\x80", 17);
  const std::string last = "\x7F \xDF\xBF \xED\x9F\xBF \xEF\xBF\xBF \xF4\x8F\xBF\xBF";
  EXPECT_EQ(ValidUtf8(first), first);
  EXPECT_EQ(ValidUtf8(last), last);
  EXPECT_EQ(ValidUtf8(""), "");
}

TEST(ValidUtf8, ReplacesOnlyTheBytesAtFault) {
  EXPECT_EQ(ValidUtf8("a\x80z"), "a?z") << "continues nothing";
  EXPECT_EQ(ValidUtf8("a\xFFz"), "a?z");
  EXPECT_EQ(ValidUtf8("a\xC1\xBFz"), "a??z") << "overlong";
  EXPECT_EQ(ValidUtf8("a\xE0\x9F\xBFz"), "a???z") << "overlong";
  EXPECT_EQ(ValidUtf8("a\xF0\x8F\xBF\xBFz"), "a????z") << "overlong";
  EXPECT_EQ(ValidUtf8("a\xED\xA0\x80z"), "a???z") << "a surrogate";
  EXPECT_EQ(ValidUtf8("a\xF4\x90\x80\x80z"), "a????z") << "beyond U+10FFFF";
  EXPECT_EQ(ValidUtf8("a\xE2\x82z"), "a??z") << "cut short";
  EXPECT_EQ(ValidUtf8("a\xE2\x82"), "a??") << "cut short by the end";
  EXPECT_EQ(ValidUtf8("\xE2\xE2\x82\xAC"), "?\xE2\x82\xAC") << "the next character is whole";
}

TEST(Utf8Stream, GivesWholeCharactersAndInAllWhatTheWholeTextWouldBe) {
  for (const std::string text :
       {"a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z", "\xE2\x82z", "\xE2\xE2\x82\xAC", "\x80\x80z",
        "\xF4\x90\x80\x80\x80", "\xFF\xC3", "\xE0\x9F\xBF\xC3\xA9", "\xF0\x9F\x98"}) {
    Utf8Stream stream;
    std::string all;
    for (const char c : text) {
      const std::string piece = stream.Add(c);
      EXPECT_EQ(ValidUtf8(piece), piece);
      all += piece;
    }
    EXPECT_EQ(all + stream.End(), ValidUtf8(text));
  }
  Utf8Stream stream;
  EXPECT_EQ(stream.Add('a'), "a") << "at once";
  EXPECT_EQ(stream.Add('\xC3'), "");
  EXPECT_EQ(stream.Add('\xA9'), "\xC3\xA9");
}

// Bug it must catch: a job's name with U+202E turns what follows, on a page or a terminal.
TEST(VisibleUtf8, LeavesNoMarkThatChangesTheDirection) {
  EXPECT_EQ(VisibleUtf8("a\xE2\x80\xAEtxt.exe"), "a\\u202etxt.exe");
  EXPECT_EQ(VisibleUtf8("\xE2\x81\xA6\xE2\x81\xA9\xE2\x80\xAA\xD8\x9C\xE2\x80\x8E\xE2\x80\x8F"),
            "\\u2066\\u2069\\u202a\\u061c\\u200e\\u200f");
  EXPECT_EQ(VisibleUtf8("\xE2\x80\xA8\xE2\x80\xA9"), "\\u2028\\u2029") << "ends of lines";
  const std::string right_to_left = "\xD7\xA9\xD7\x9C\xD7\x95\xD7\x9D";
  EXPECT_EQ(VisibleUtf8(right_to_left), right_to_left) << "letters have their own direction";
  const std::string near = "\xE2\x80\xAF\xE2\x80\x90\xE2\x81\xA5\xE2\x81\xAA\xD8\x9B";
  EXPECT_EQ(VisibleUtf8(near), near) << "their neighbours";
}

TEST(VisibleUtf8, LeavesNothingThatATerminalWouldObey) {
  EXPECT_EQ(VisibleUtf8("a\tb\n\xC3\xA9\xE2\x82\xAC"), "a\tb\n\xC3\xA9\xE2\x82\xAC");
  EXPECT_EQ(VisibleUtf8("\x1B[2J\r\a\x7F"), "\\x1b[2J\\x0d\\x07\\x7f");
  EXPECT_EQ(VisibleUtf8(absl::string_view("\0z", 2)), "\\x00z");
  EXPECT_EQ(VisibleUtf8("\xC2\x9B"
                        "31m\xC2\xA0"),
            "\\x9b31m\xC2\xA0")
      << "CSI in one character";
}

TEST(CutUtf8, EndsWithAWholeCharacter) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";  // 1, 2, 3 and 4 bytes.
  const size_t ends[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
  for (size_t max = 0; max < std::size(ends); ++max) {
    EXPECT_EQ(CutUtf8(text, max), text.substr(0, ends[max])) << max;
  }
}

TEST(LastUtf8, BeginsWithAWholeCharacter) {
  const std::string text = "\xF0\x9F\x98\x80\xE2\x82\xAC\xC3\xA9z";  // 4, 3, 2 and 1 bytes.
  const size_t sizes[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
  for (size_t max = 0; max < std::size(sizes); ++max) {
    EXPECT_EQ(LastUtf8(text, max), text.substr(text.size() - sizes[max])) << max;
  }
}

TEST(CutUtf8, GivesUpLittleForBytesThatAreNoText) {
  const std::string bytes(20, '\x80');
  EXPECT_EQ(CutUtf8(bytes, 10).size(), 7u);
  EXPECT_EQ(LastUtf8(bytes, 10).size(), 7u);
}

}  // namespace
}  // namespace trainyard
