// Proves which sandbox a worker's ranks get, and that what is required and missing is said at the
// start.

#include "worker/sandbox/options.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "common/check.h"
#include "common/files.h"
#include "tests/worker/daemon/testing.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SandboxOptionsTest : public ::testing::Test {
 protected:
  SandboxOptionsTest() {
    for (const char* name : {"/root", "/state/ranks"}) {
      CHECK(MakeDirectories(directory_.path() + name).ok());
    }
    CHECK(::chmod(directory_.path().c_str(), 0755) == 0);
  }
  SandboxRequest Request(const std::string& mode, const std::string& user = "") const {
    return {.mode = mode,
            .user = user,
            .roots = {directory_.path() + "/root"},
            .state_directory = directory_.path() + "/state",
            .hidden = {"", directory_.path() + "/config", "relative"}};
  }
  static std::string Error(const SandboxRequest& request) {
    return std::string(ChooseSandbox(request).status().message());
  }
  const TemporaryDirectory directory_;
};

TEST_F(SandboxOptionsTest, OffIsOffAndNothingElseIs) {
  EXPECT_EQ(ChooseSandbox(Request("off")).value(), std::nullopt);
  EXPECT_THAT(Error(Request("off", "nobody")),
              HasSubstr("--rank-user: wanted --sandbox auto or require"));
  EXPECT_THAT(Error(Request("on")), HasSubstr("wanted off, auto or require, found 'on'"));
  const auto automatic = ChooseSandbox(Request("auto"));
  ASSERT_TRUE(automatic.ok()) << automatic.status();
  ASSERT_TRUE(automatic->has_value());
  EXPECT_TRUE((*automatic)->landlock);
  EXPECT_THAT((*automatic)->hidden,
              ElementsAre(directory_.path() + "/state", directory_.path() + "/config",
                          std::filesystem::current_path().string() + "/relative"));
}

// Bug it must catch: jobs that may read nothing below their root, and fail one after the other.
TEST_F(SandboxOptionsTest, ARootThatIsHiddenIsRefused) {
  SandboxRequest request = Request("auto");
  request.roots.push_back(directory_.path() + "/state");
  EXPECT_THAT(Error(request),
              HasSubstr("/state: this directory holds secrets that ranks must not see"));
  request.roots.back() = directory_.path();
  EXPECT_TRUE(ChooseSandbox(request).ok()) << "one above";
}

TEST_F(SandboxOptionsTest, RootStartsRanksAsTheOwnerOfTheDataOrAsWhoIsNamed) {
  if (::geteuid() != 0) {
    EXPECT_THAT(Error(Request("auto", "nobody")), HasSubstr("only root can"));
    EXPECT_EQ(ChooseSandbox(Request("require")).value()->user, std::nullopt);
    return;
  }
  EXPECT_FALSE(ChooseSandbox(Request("auto")).value()->user.has_value()) << "root's own data";
  EXPECT_THAT(Error(Request("require")), HasSubstr("ranks would run as root"));
  EXPECT_EQ(ChooseSandbox(Request("require", "nobody")).value()->user->name, "nobody");
  EXPECT_THAT(Error(Request("auto", "no-such-user")), HasSubstr("does not know"));
  EXPECT_THAT(Error(Request("auto", "root")), HasSubstr("other than root"));
  ASSERT_EQ(::chown((directory_.path() + "/root").c_str(), 54321, 54322), 0);
  const auto owner = ChooseSandbox(Request("require"));
  ASSERT_TRUE(owner.ok()) << owner.status();
  EXPECT_EQ((*owner)->user->uid, 54321u);
  EXPECT_EQ((*owner)->user->gid, 54322u);
  ASSERT_EQ(::chmod((directory_.path() + "/state").c_str(), 0700), 0);
  EXPECT_THAT(Error(Request("require")), HasSubstr("who cannot get to"));
}

}  // namespace
}  // namespace trainyard
