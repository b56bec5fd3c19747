// Proves that expressions match as Oniguruma's do, on examples worked out by hand, and that what
// they do not know is refused by name. golden_test.cc compares whole tokenizers.

#include "train/tokenizer/expression.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "absl/strings/str_format.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Matches(absl::string_view pattern, const std::string& text) {
  const auto expression = Expression::Compile(pattern);
  EXPECT_TRUE(expression.ok()) << expression.status();
  std::vector<std::string> matches;
  if (!expression.ok()) return matches;
  Expression::Finder finder(*expression, text);
  for (TextRange match; finder.Next(match);) {
    matches.push_back(text.substr(match.begin, match.end - match.begin));
  }
  EXPECT_FALSE(finder.gave_up());
  return matches;
}

TEST(Expression, TakesTheFirstAlternativeThatMatchesAndGivesBackWhatIsNeeded) {
  EXPECT_THAT(Matches("a|ab", "ab"), ElementsAre("a"));
  EXPECT_THAT(Matches(R"(\s+(?!\S)|\s+)", "a   b \n"), ElementsAre("  ", " ", " \n"));
  EXPECT_THAT(Matches(R"(\s*[\r\n]+|\s+)", " \n \n  x"), ElementsAre(" \n \n", "  "));
  EXPECT_THAT(Matches("(?:ab)?c", "abcc"), ElementsAre("abc", "c"));
}

TEST(Expression, RepeatsAsManyTimesAsItSays) {
  EXPECT_THAT(Matches(R"(\p{N}{1,3})", "12345"), ElementsAre("123", "45"));
  EXPECT_THAT(Matches("a{2}", "aaaaa"), ElementsAre("aa", "aa"));
  EXPECT_THAT(Matches("a{2,}", "a aa aaa"), ElementsAre("aa", "aaa"));
  EXPECT_THAT(Matches("a+?b", "aab"), ElementsAre("aab"));
  EXPECT_THAT(Matches("a++a|b", "aaab"), ElementsAre("b"));
}

TEST(Expression, ClassesNestAndIntersect) {
  EXPECT_THAT(Matches(R"([^(\s|[.,!?…])]+)", "a(b c.d…e)"), ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_THAT(Matches(R"([\p{L}&&[^\p{Han}]]+)", "ab中cд"), ElementsAre("ab", "cд"));
  EXPECT_THAT(Matches(R"([a\-z]+)", "a-m-z"), ElementsAre("a-", "-z"));
  EXPECT_THAT(Matches(R"([\]\[x-]+)", "[x-]"), ElementsAre("[x-]"));
}

TEST(Expression, WhiteSpaceIsThatOfUnicode) {
  // PCRE2 and ICU have U+180E or U+001C, too, or lack U+0085.
  EXPECT_THAT(Matches(R"(\S+)",
                      "a\xC2\x85"
                      "b\xE1\xA0\x8E"
                      "c\x1C"
                      "d\xE3\x80\x80"),
              ElementsAre("a",
                          "b\xE1\xA0\x8E"
                          "c\x1C"
                          "d"));
}

TEST(Expression, IgnoringCaseIncludesTheLongSAndTheKelvinSign) {
  EXPECT_THAT(Matches("(?i:'s|'k)", "'S'\xC5\xBF'\xE2\x84\xAA"),
              ElementsAre("'S", "'\xC5\xBF", "'\xE2\x84\xAA"));
  EXPECT_THAT(Matches("(?i)'ll|x", "'Ll X"), ElementsAre("'Ll", "X"));
  EXPECT_THAT(Matches("(?i:a)b", "Ab AB"), ElementsAre("Ab"));
}

TEST(Expression, IgnoringCaseHoldsForEscapesToo) {
  EXPECT_THAT(Matches(R"((?i:\x73))", "sS\xC5\xBF"), ElementsAre("s", "S", "\xC5\xBF"));
  EXPECT_THAT(Matches(R"((?i:\s\p{L}))", " A b"), ElementsAre(" A", " b"));
  for (const char* pattern : {R"((?i:s\x73))", R"((?i:\x{E9}))", R"((?i:\p{Lu}))"}) {
    EXPECT_THAT(Expression::Compile(pattern).status().message(), HasSubstr("wanted")) << pattern;
  }
}

TEST(Expression, LongPatternsAreRefusedBeforeTheyAreRead) {
  const std::string most(16 << 10, 'a'), more = most + "a";
  EXPECT_TRUE(Expression::Literally(most.substr(0, 5000)).ok());
  EXPECT_THAT(Expression::Literally(more).status().message(), HasSubstr("at most 16384 bytes"));
  EXPECT_THAT(Expression::Compile(more).status().message(), HasSubstr("at most 16384 bytes"));
  // Takes quadratic time in the number of ranges: 100 s for 10 MB.
  std::string ranges = "[";
  for (int i = 0; i < 1'000'000; ++i) ranges += absl::StrFormat("\\u%04x", 0x2000 + i % 20000 * 2);
  EXPECT_THAT(Expression::Compile(ranges + "]").status().message(), HasSubstr("at most 16384"));
}

TEST(Expression, RefusesByNameWhatItDoesNotKnow) {
  for (const char* pattern :
       {R"(\w+)",    R"(\bx)",  "^a",      "a$",           "(?<=a)b",      "(?>a)b",  R"((a)\1)",
        "(ab)+",     "a{1,2}+", "a**",     "[[:alpha:]]",  R"(\p{Greek})", "(?i:ss)", "(?i:é)",
        "(?i:[^a])", "[z-a]",   "[]",      "(a",           "a)",           "[a",      R"(\p{L)",
        "{2}",       "a{3,2}",  "a{1001}", R"([\s-a])",    "(?=a)+",       "a|",      "a*",
        "(?!a)",     "(?i",     "\\",      R"(\x{110000})"}) {
    const auto expression = Expression::Compile(pattern);
    ASSERT_FALSE(expression.ok()) << pattern;
    EXPECT_EQ(expression.status().code(), absl::StatusCode::kInvalidArgument) << pattern;
    EXPECT_THAT(expression.status().message(), HasSubstr("wanted")) << pattern;
  }
  EXPECT_THAT(Expression::Compile(R"(a|\w+)").status().message(), HasSubstr("'\\w+' at byte 2"));
}

TEST(Expression, GivesUpWhenAMatchTakesTooManySteps) {
  const auto expression = Expression::Compile(R"(\s*\s*\s*\s*x)");
  ASSERT_TRUE(expression.ok()) << expression.status();
  const std::string text(20000, ' ');
  Expression::Finder finder(*expression, text);
  TextRange match;
  EXPECT_FALSE(finder.Next(match));
  EXPECT_TRUE(finder.gave_up());
}

TEST(Expression, ALongRunOfSpacesTakesNoLongerThanItsLength) {
  const auto expression = Expression::Compile(R"(\s*[\r\n]+|\s+(?!\S)|\s+)");
  ASSERT_TRUE(expression.ok()) << expression.status();
  const std::string text = std::string(4'000'000, ' ') + "x";
  Expression::Finder finder(*expression, text);
  TextRange match;
  ASSERT_TRUE(finder.Next(match));
  EXPECT_EQ(match, (TextRange{0, 3'999'999}));
  EXPECT_FALSE(finder.gave_up());
}

}  // namespace
}  // namespace trainyard
