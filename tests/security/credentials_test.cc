// Proves that the user of a controller on this machine finds its token, and nobody else does.

#include "security/credentials.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/controller/testing/temp_directory.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

const Address kController = {.host = "127.0.0.1", .port = 7070};

class CredentialsTest : public ::testing::Test {
 protected:
  std::string Config() const { return directory_.path() + "/config"; }
  CredentialPlaces Home() const { return {.config_directory = Config()}; }
  std::string Find(const std::string& address) const {
    return FindCredential(Home(), *ParseAddress(address))->token;
  }

  const controller::TempDirectory directory_;
};

TEST_F(CredentialsTest, IsFoundByAddressOnLoopbackAlone) {
  ASSERT_TRUE(PublishToken(Config(), kController, "ty_a").ok());
  ASSERT_TRUE(PublishToken(Config(), {"127.0.0.1", 7071}, "ty_b").ok());
  EXPECT_EQ(Find("127.0.0.1:7070"), "ty_a");
  EXPECT_EQ(Find("localhost:7071"), "ty_b");
  EXPECT_EQ(Find("[::1]:7070"), "") << "another user may listen there";
  EXPECT_EQ(Find("127.0.0.1:7072"), "");
  EXPECT_EQ(FindCredential({}, kController)->token, "") << "there is no home";
}

TEST_F(CredentialsTest, ANamedFileComesFirst) {
  ASSERT_TRUE(PublishToken(Config(), kController, "ty_a").ok());
  ASSERT_TRUE(PublishToken(Config(), {"::1", 1}, "ty_named").ok());
  CredentialPlaces places = Home();
  places.token_file = Config() + "/loopback/[::1]:1";
  EXPECT_EQ(FindCredential(places, kController)->token, "ty_named");
  places.token_file = Config() + "/absent";
  EXPECT_TRUE(absl::IsNotFound(FindCredential(places, kController).status()));
}

TEST_F(CredentialsTest, IsReadByItsUserAlone) {
  ASSERT_TRUE(PublishToken(Config(), kController, "ty_a").ok());
  const std::string path = Config() + "/loopback/127.0.0.1:7070";
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  ASSERT_EQ(::stat((Config() + "/loopback").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  const auto found = FindCredential(Home(), kController);
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.status().message(), HasSubstr("chmod"));
}

TEST_F(CredentialsTest, IsWithdrawnByWhoPublishedIt) {
  ASSERT_TRUE(PublishToken(Config(), kController, "ty_later").ok());
  WithdrawToken(Config(), kController, "ty_earlier");
  EXPECT_EQ(Find("127.0.0.1:7070"), "ty_later");
  WithdrawToken(Config(), kController, "ty_later");
  EXPECT_EQ(Find("127.0.0.1:7070"), "");
}

TEST_F(CredentialsTest, OffLoopbackAControllerMustBeKnown) {
  const Address far = {.host = "10.0.0.1", .port = 7070};
  const auto unknown = FindCredential(Home(), far);
  EXPECT_TRUE(absl::IsFailedPrecondition(unknown.status()));
  EXPECT_THAT(unknown.status().message(), HasSubstr("trainyard login 10.0.0.1:7070"));
  ASSERT_TRUE(SaveLogin(Config(), far, {.token = "ty_far", .authorities = "PEM"}).ok());
  EXPECT_EQ(FindCredential(Home(), far)->token, "ty_far");
  EXPECT_EQ(FindCredential(Home(), far)->authorities, "PEM");
  ASSERT_TRUE(RemoveLogin(Config(), far).ok());
  EXPECT_FALSE(FindCredential(Home(), far).ok());
  std::ofstream(Config() + "/mine.pem") << "MINE";
  CredentialPlaces places = Home();
  places.authority_file = Config() + "/mine.pem";
  EXPECT_EQ(FindCredential(places, far)->authorities, "MINE");
}

TEST(Invitation, IsReadAsItIsWritten) {
  for (const Invitation& invitation :
       {Invitation{"ty_a_b", "sha256:0a"}, Invitation{"ty_a_b", ""}}) {
    const auto read = ParseInvitation(ToText(invitation));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->token, invitation.token);
    EXPECT_EQ(read->fingerprint, invitation.fingerprint);
  }
  for (const char* wrong : {"", "\n", "sha256:0a\n", "ty_a ty_b", "ty_a sha256:1 sha256:2"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseInvitation(wrong).status())) << wrong;
  }
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
