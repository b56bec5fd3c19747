// Proves that numbers for people stay short and carry their unit, at the borders between units too.

#include "cli/format.h"

#include <gmock/gmock.h>

#include <cmath>

namespace trainyard::cli {
namespace {

TEST(Format, CountsHaveThreeDigitsAndAUnit) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(999.7), "1k");
  EXPECT_EQ(FormatCount(12345), "12.3k");
  EXPECT_EQ(FormatCount(8.03e9), "8.03G");
}

TEST(Format, SecondsChangeTheirUnit) {
  EXPECT_EQ(FormatSeconds(0.34), "0.3s");
  EXPECT_EQ(FormatSeconds(59.6), "1m00s");
  EXPECT_EQ(FormatSeconds(80), "1m20s");
  EXPECT_EQ(FormatSeconds(3 * 3600 + 5 * 60), "3h05m");
  EXPECT_EQ(FormatSeconds(2 * 86400 + 4 * 3600), "2d04h");
  EXPECT_EQ(FormatSeconds(std::nan("")), "?");
  EXPECT_EQ(FormatSeconds(-1), "?");
}

TEST(Format, TimesAreUtcAndAbsentOnesEmpty) {
  google::protobuf::Timestamp timestamp;
  EXPECT_EQ(FormatTimestamp(timestamp), "");
  timestamp.set_seconds(1'700'000'000);
  timestamp.set_nanos(125'000'000);
  EXPECT_EQ(FormatTimestamp(timestamp), "2023-11-14T22:13:20.125Z");
}

}  // namespace
}  // namespace trainyard::cli
