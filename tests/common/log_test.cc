// Proves that a line of the log is one line of visible characters, whatever its values hold.

#include "common/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard {
namespace {

using ::testing::EndsWith;

std::string Logged(const std::string& value) {
  ::testing::internal::CaptureStderr();
  LogInfo("event", {{"key", value}, {"number", 7}});
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, ValuesOfVisibleCharactersStandAsTheyAre) {
  EXPECT_THAT(Logged("j-7f3a:/x_Y~"), EndsWith("Z info event key=j-7f3a:/x_Y~ number=7\n"));
}

TEST(Log, OtherValuesAreQuotedAndEscaped) {
  EXPECT_THAT(Logged(""), EndsWith(" key=\"\" number=7\n"));
  EXPECT_THAT(Logged("two words"), EndsWith(" key=\"two words\" number=7\n"));
  EXPECT_THAT(Logged("a=b"), EndsWith(" key=\"a=b\" number=7\n"));
  EXPECT_THAT(Logged("a\nb"), EndsWith(" key=\"a\\nb\" number=7\n"));
  // Bugs it must catch: a terminal that is cleared, or text that reads from right to left.
  EXPECT_THAT(Logged("\x1b[2J"), EndsWith(" key=\"\\033[2J\" number=7\n"));
  EXPECT_THAT(Logged("\xe2\x80\xae"), EndsWith(" key=\"\\342\\200\\256\" number=7\n"));
}

}  // namespace
}  // namespace trainyard
