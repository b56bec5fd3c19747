// Proves what the cluster's authority makes, keeps and renews.

#include "security/authority.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "common/files.h"
#include "security/secret_file.h"
#include "tests/controller/testing/temp_directory.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

class AuthorityTest : public ::testing::Test {
 protected:
  std::string Directory() const { return directory_.path() + "/authority"; }
  CertificateFacts Server() const {
    return *ReadCertificate(*ReadSecret(Directory() + "/server.pem"));
  }
  Authority MustOpen() const {
    auto authority = Authority::Open(Directory(), kNow);
    EXPECT_TRUE(authority.ok()) << authority.status();
    return *std::move(authority);
  }

  const controller::TempDirectory directory_;
};

TEST_F(AuthorityTest, IsMadeOnceAndItsServerAsOftenAsAsked) {
  ASSERT_TRUE(Authority::Init(Directory(), {"a.example.org", "10.0.0.1", "::1"}, kNow).ok());
  const std::string first = MustOpen().fingerprint();
  EXPECT_THAT(Server().dns_names, ElementsAre("a.example.org"));
  EXPECT_THAT(Server().addresses, ElementsAre("10.0.0.1", "::1"));
  EXPECT_TRUE(Server().server);
  EXPECT_FALSE(Server().client) << "a stolen key of the controller would make a worker";
  ASSERT_TRUE(Authority::Init(Directory(), {"b.example.org"}, kNow).ok());
  EXPECT_EQ(MustOpen().fingerprint(), first) << "all workers would have to join again";
  EXPECT_THAT(Server().dns_names, ElementsAre("b.example.org"));
  EXPECT_FALSE(Authority::Init(Directory(), {}, kNow).ok());
  EXPECT_FALSE(Authority::Init(Directory(), {"no host"}, kNow).ok());
}

TEST_F(AuthorityTest, ItsKeysAreItsOwnersAlone) {
  ASSERT_TRUE(Authority::Init(Directory(), {"a"}, kNow).ok());
  for (const char* name : {"authority.key", "server.pem"}) {
    struct stat info {};
    ASSERT_EQ(::stat((Directory() + "/" + name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600U) << name;
  }
  ASSERT_EQ(::chmod((Directory() + "/authority.key").c_str(), 0640), 0);
  EXPECT_THAT(Authority::Open(Directory(), kNow).status().message(), HasSubstr("chmod"));
}

TEST_F(AuthorityTest, RenewsWhenAThirdOfTheTimeIsLeft) {
  ASSERT_TRUE(Authority::Init(Directory(), {"a", "10.0.0.1"}, kNow).ok());
  const Authority authority = MustOpen();
  const std::string first = *ReadSecret(authority.server_path());
  EXPECT_FALSE(*authority.RenewServer(kNow + kCertificatesHold * 0.5));
  EXPECT_EQ(*ReadSecret(authority.server_path()), first);
  EXPECT_TRUE(*authority.RenewServer(kNow + kCertificatesHold * 0.7));
  EXPECT_NE(*ReadSecret(authority.server_path()), first);
  EXPECT_THAT(Server().dns_names, ElementsAre("a"));
  EXPECT_THAT(Server().addresses, ElementsAre("10.0.0.1"));
  EXPECT_EQ(Server().not_after, kNow + kCertificatesHold * 1.7);
  EXPECT_TRUE(*authority.RenewServer(kNow + kCertificatesHold * 9)) << "it was stopped for long";
}

TEST_F(AuthorityTest, WhatCannotBeUsedIsNamed) {
  EXPECT_TRUE(absl::IsNotFound(Authority::Open(Directory(), kNow).status()));
  ASSERT_TRUE(Authority::Init(Directory(), {"a"}, kNow).ok());
  EXPECT_THAT(Authority::Open(Directory(), kNow + 2 * kAuthorityHolds).status().message(),
              HasSubstr("authority.pem: "));
  ASSERT_TRUE(WriteFileAtomic(Directory() + "/authority.pem", "nothing").ok());
  const auto damaged = Authority::Open(Directory(), kNow);
  EXPECT_TRUE(absl::IsFailedPrecondition(damaged.status()));
  // A new authority must be asked for: this one may be what a backup brings back.
  EXPECT_FALSE(Authority::Init(Directory(), {"a"}, kNow).ok());
}

}  // namespace
}  // namespace trainyard
