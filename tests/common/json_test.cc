// Proves that JSON is taken for what it says: whole numbers that fit, and no more levels than there
// is stack for.

#include "common/json.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

std::string Nested(int levels) { return std::string(levels, '[') + std::string(levels, ']'); }

TEST(ParseJson, ReadsWhatIsJsonAndNestsAsDeepAsItMay) {
  EXPECT_EQ(ParseJson(R"({"a": [1, {"b": null}]})").dump(), R"({"a":[1,{"b":null}]})");
  EXPECT_FALSE(ParseJson(Nested(kMaxJsonDepth)).is_discarded());
  EXPECT_TRUE(ParseJson(R"({"a": )").is_discarded());
}

// Bug it must catch: to print what was read ends the process, for want of stack.
TEST(ParseJson, RefusesWhatNestsDeeper) {
  EXPECT_TRUE(ParseJson(Nested(kMaxJsonDepth + 1)).is_discarded());
  EXPECT_TRUE(ParseJson(Nested(1'000'000)).is_discarded());
}

// Bug it must catch: a checker takes one of the values, and a reader the other.
TEST(ParseUniqueJson, RefusesAKeyThatAnObjectHasTwice) {
  EXPECT_EQ(ParseUniqueJson(R"({"a": {"a": 1}, "b": [{"a": 2}, {"a": 3}]})").dump(),
            R"({"a":{"a":1},"b":[{"a":2},{"a":3}]})");
  EXPECT_TRUE(ParseUniqueJson(R"({"a": 1, "b": 2, "a": 1})").is_discarded());
  EXPECT_TRUE(ParseUniqueJson(R"([{"b": {"a": 1, "\u0061": 2}}])").is_discarded());
  EXPECT_TRUE(ParseUniqueJson(Nested(kMaxJsonDepth + 1)).is_discarded());
  EXPECT_TRUE(ParseUniqueJson("{\"a\": \"\xff\"}").is_discarded());
}

TEST(ParsePythonJson, ReadsNumbersThatAreNotFiniteAsObjects) {
  EXPECT_EQ(ParsePythonJson(R"({"a": [0.0, Infinity], "b": -Infinity, "c": NaN})").dump(),
            R"({"a":[0.0,{"__float__":"Infinity"}],"b":{"__float__":"-Infinity"},)"
            R"("c":{"__float__":"NaN"}})");
  const char* const in_strings = R"({"Infinity":"a\"NaN\\","b":"-Infinity"})";
  EXPECT_EQ(ParsePythonJson(in_strings).dump(), in_strings);
  for (const char* text :
       {"InfinityNaN", "[1Infinity]", "Infinit", R"({"a": 1, "a": NaN})", "\""}) {
    EXPECT_TRUE(ParsePythonJson(text).is_discarded()) << text;
  }
}

template <typename T>
bool Reads(const char* text, T wanted) {
  const T before = 7;
  T read = before;
  const bool held = ReadInteger(ParseJson(text), read);
  EXPECT_EQ(read, held ? wanted : before) << text;
  return held;
}

TEST(ReadInteger, TakesWholeNumbersThatFitAndLeavesOthers) {
  EXPECT_TRUE(Reads<uint32_t>("4294967295", 4294967295));
  EXPECT_TRUE(Reads<int64_t>("-9223372036854775808", INT64_MIN));
  EXPECT_TRUE(Reads<uint64_t>("18446744073709551615", UINT64_MAX));
  EXPECT_FALSE(Reads<uint32_t>("4294967296", 0));
  EXPECT_FALSE(Reads<uint64_t>("-1", 0));
  EXPECT_FALSE(Reads<int64_t>("9223372036854775808", 0));
  for (const char* text : {"1.0", "1e300", "true", "null", "\"1\"", "[1]"}) {
    EXPECT_FALSE(Reads<int64_t>(text, 0)) << text;
  }
}

}  // namespace
}  // namespace trainyard
