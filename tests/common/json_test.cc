// Proves that JSON is taken for what it says: whole numbers that fit, and no more levels than there
// is stack for.

#include "common/json.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

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

std::string Dump(const absl::StatusOr<nlohmann::json>& json) {
  return json.ok() ? json->dump() : std::string(json.status().message());
}

// Bug it must catch: a checker takes one of the values, and a reader the other.
TEST(ParseUniqueJson, RefusesAKeyThatAnObjectHasTwice) {
  EXPECT_EQ(Dump(ParseUniqueJson(R"({"a": {"a": 1}, "b": [{"a": 2}, {"a": 3}]})")),
            R"({"a":{"a":1},"b":[{"a":2},{"a":3}]})");
  EXPECT_EQ(Dump(ParseUniqueJson(R"({"a": 1, "b": 2, "a": 1})")),
            R"(wanted JSON, found the key "a" twice)");
  EXPECT_EQ(Dump(ParseUniqueJson(R"([{"b": {"a": 1, "\u0061": 2}}])")),
            R"(wanted JSON, found the key "a" twice)");
}

// Bug it must catch: in a file of thousands of lines, a user looks for a key without its line.
TEST(ParseUniqueJson, SaysInWhichLineAKeyComesAgain) {
  for (const char* second : {"3,\n \"a\"\n\n: 4}", "3,\n \"a\": {\n\"a\": 1}}", "3,\r\n\"a\"\n"}) {
    EXPECT_EQ(Dump(ParseUniqueJson(absl::StrCat("{\n\"a\": 1,\n\"b\": ", second))),
              R"(wanted JSON, found the key "a" twice, the second time in line 4)")
        << second;
  }
  // The words of Python are longer once they are rewritten, and their lines are the same.
  EXPECT_EQ(Dump(ParsePythonJson("{\"a\": [NaN,\nInfinity],\n\"a\": 1}")),
            R"(wanted JSON, found the key "a" twice, the second time in line 3)");
  EXPECT_EQ(Dump(ParseUniqueJson("\xEF\xBB\xBF{\"a\": 1,\n\"a\": 2}")),
            R"(wanted JSON, found the key "a" twice, the second time in line 2)");
}

TEST(ParseUniqueJson, SaysWhatWasFoundAndInWhichLine) {
  EXPECT_EQ(Dump(ParseUniqueJson(Nested(kMaxJsonDepth + 1))),
            "wanted JSON, found more than 64 levels");
  EXPECT_EQ(Dump(ParseUniqueJson("{\"a\":\n1,\n\"b\": \"\xff\"}")),
            "wanted JSON, found something else, \"\"?\", in line 3");
  EXPECT_EQ(Dump(ParseUniqueJson("{\"a\": 1\n\"b\": 2}")),
            "wanted JSON, found something else, \"\"b\"\", in line 2");
  EXPECT_EQ(Dump(ParseUniqueJson("{\"a\": \"b\n\"}")),  // A text ends in its line.
            "wanted JSON, found something else, \"\"b<U+000A>\", in line 1");
  EXPECT_EQ(Dump(ParsePythonJson("[NaN,\nTrue]")), "wanted JSON, found something else in line 2");
  EXPECT_EQ(Dump(ParseUniqueJson("")), "wanted JSON, found an empty text");
  EXPECT_EQ(Dump(ParseUniqueJson("[1,\n1e400]")),
            "wanted JSON, found a number that is too large, \"1e400\", in line 2");
  for (const char* text : {"{\"a\": ", "{\"a\": \"", "\"", "[1, 2\n"}) {
    EXPECT_EQ(Dump(ParseUniqueJson(text)), "wanted JSON, found a text that ends within a value")
        << text;
  }
}

TEST(ParsePythonJson, ReadsNumbersThatAreNotFiniteAsObjects) {
  EXPECT_EQ(Dump(ParsePythonJson(R"({"a": [0.0, Infinity], "b": -Infinity, "c": NaN})")),
            R"({"a":[0.0,{"__float__":"Infinity"}],"b":{"__float__":"-Infinity"},)"
            R"("c":{"__float__":"NaN"}})");
  const char* const in_strings = R"({"Infinity":"a\"NaN\\","b":"-Infinity"})";
  EXPECT_EQ(Dump(ParsePythonJson(in_strings)), in_strings);
  for (const char* text :
       {"InfinityNaN", "[1Infinity]", "Infinit", R"({"a": 1, "a": NaN})", "\""}) {
    EXPECT_FALSE(ParsePythonJson(text).ok()) << text;
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
