// Proves that nobody writes to the controller's log what they like, or as much, by what gRPC quotes
// of their bytes.

#include "controller/service/grpc_log.h"

#include <gmock/gmock.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace trainyard::controller {
namespace {

using ::testing::HasSubstr;

std::string Logged(int times, const char* text) {
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < times; ++i)
    gpr_log("/build/grpc/parser.cc", 7, GPR_LOG_SEVERITY_ERROR, "%s", text);
  return ::testing::internal::GetCapturedStderr();
}

TEST(GrpcLog, IsEscapedAndCutAndRare) {
  LogWhatGrpcSays();
  ::gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);  // As gRPC does when it begins.
  const std::string bytes = "value=\x1b[2J\n2026-01-01T00:00:00.000Z info forged\xd6\xe2\x80\xae";
  const std::string log = Logged(1000, (bytes + std::string(100'000, 'a')).c_str());
  EXPECT_TRUE(std::all_of(log.begin(), log.end(), [](char c) {
    return c == '\n' || (c >= ' ' && c <= '~');
  })) << log;
  EXPECT_THAT(log, HasSubstr(" warning grpc file=parser.cc line=7 said=\"value=\\033[2J\\n2026"));
  EXPECT_LT(log.size(), 12'000);
  const std::vector<std::string> lines = absl::StrSplit(log, '\n', absl::SkipEmpty());
  EXPECT_LE(lines.size(), 20) << "of two seconds at most";
  // gRPC says why it ends the process.
  EXPECT_THAT(Logged(1, "assertion failed: x"), HasSubstr(" said=\"assertion failed: x\""));
  absl::SleepFor(absl::Seconds(1));
  EXPECT_THAT(Logged(1, "again"), HasSubstr(" said=again left_out=9"));  // 990, or somewhat less.
  for (const std::string& line : lines)
    EXPECT_TRUE(absl::StrContains(line, " warning grpc ")) << line;
}

}  // namespace
}  // namespace trainyard::controller
