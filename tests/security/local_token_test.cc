// Proves that the user of a controller on this machine finds its token, and nobody else does.

#include "security/local_token.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/controller/testing/temp_directory.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

const Address kController = {.host = "127.0.0.1", .port = 7070};

class LocalTokenTest : public ::testing::Test {
 protected:
  std::string Config() const { return directory_.path() + "/config"; }
  TokenPlaces Home() const { return {.file = "", .config_directory = Config()}; }
  std::string Find(const std::string& address) const {
    return *FindToken(Home(), *ParseAddress(address));
  }

  const controller::TempDirectory directory_;
};

TEST_F(LocalTokenTest, IsFoundByAddressOnLoopbackAlone) {
  ASSERT_TRUE(PublishToken(Config(), kController, "ty_a").ok());
  ASSERT_TRUE(PublishToken(Config(), {"127.0.0.1", 7071}, "ty_b").ok());
  EXPECT_EQ(Find("127.0.0.1:7070"), "ty_a");
  EXPECT_EQ(Find("localhost:7071"), "ty_b");
  EXPECT_EQ(Find("[::1]:7070"), "") << "another user may listen there";
  EXPECT_EQ(Find("127.0.0.1:7072"), "");
  EXPECT_EQ(Find("10.0.0.1:7070"), "") << "another machine's controller has another token";
  EXPECT_EQ(*FindToken({}, *ParseAddress("127.0.0.1:7070")), "") << "there is no home";
}

TEST_F(LocalTokenTest, ANamedFileComesFirst) {
  ASSERT_TRUE(PublishToken(Config(), kController, "ty_a").ok());
  ASSERT_TRUE(PublishToken(Config(), {"::1", 1}, "ty_named").ok());
  TokenPlaces places = Home();
  places.file = Config() + "/loopback/[::1]:1";
  EXPECT_EQ(*FindToken(places, *ParseAddress("127.0.0.1:7070")), "ty_named");
  EXPECT_EQ(*FindToken(places, *ParseAddress("10.0.0.1:7070")), "ty_named");
  places.file = Config() + "/absent";
  EXPECT_TRUE(absl::IsNotFound(FindToken(places, *ParseAddress("127.0.0.1:7070")).status()));
}

TEST_F(LocalTokenTest, IsReadByItsUserAlone) {
  ASSERT_TRUE(PublishToken(Config(), kController, "ty_a").ok());
  const std::string path = Config() + "/loopback/127.0.0.1:7070";
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  ASSERT_EQ(::stat((Config() + "/loopback").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  const auto found = FindToken(Home(), *ParseAddress("127.0.0.1:7070"));
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.status().message(), HasSubstr("chmod"));
}

TEST_F(LocalTokenTest, IsWithdrawnByWhoPublishedIt) {
  ASSERT_TRUE(PublishToken(Config(), kController, "ty_later").ok());
  WithdrawToken(Config(), kController, "ty_earlier");
  EXPECT_EQ(Find("127.0.0.1:7070"), "ty_later");
  WithdrawToken(Config(), kController, "ty_later");
  EXPECT_EQ(Find("127.0.0.1:7070"), "");
}

TEST(ConfigDirectory, IsXdgsOrTheHomes) {
  EXPECT_EQ(ConfigDirectory("/x", "/home/a"), "/x/trainyard");
  EXPECT_EQ(ConfigDirectory(nullptr, "/home/a"), "/home/a/.config/trainyard");
  EXPECT_EQ(ConfigDirectory("", "/home/a"), "/home/a/.config/trainyard");
  EXPECT_EQ(ConfigDirectory("relative", "/home/a"), "/home/a/.config/trainyard");
  EXPECT_EQ(ConfigDirectory(nullptr, nullptr), "");
  EXPECT_EQ(ConfigDirectory(nullptr, ""), "");
}

}  // namespace
}  // namespace trainyard
