// Proves that a worker whose controller does not answer can still be looked at and ended, and that
// a worker which cannot come back says why.

#include "worker/service/membership.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/files.h"
#include "security/authority.h"
#include "security/secret_file.h"
#include "tests/testing/read_faults.h"
#include "tests/worker/daemon/testing.h"

namespace trainyard {
namespace {

// Takes connections, and says nothing.
class SilentController {
 public:
  SilentController() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    CHECK(::bind(listener_, generic, size) == 0 && ::listen(listener_, 8) == 0);
    CHECK(::getsockname(listener_, generic, &size) == 0);
    port_ = ntohs(address.sin_port);
  }
  ~SilentController() {
    ::close(connection_);
    ::close(listener_);
  }
  int port() const { return port_; }
  void AwaitConnection() {
    connection_ = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    CHECK(connection_ >= 0);
  }
  // Whoever waits for an answer sees the end, and later ones meet nobody.
  void End() {
    ::shutdown(listener_, SHUT_RDWR);
    ::shutdown(connection_, SHUT_RDWR);
  }

 private:
  const int listener_;
  int connection_ = -1;
  int port_ = 0;
};

// Bug it must catch: a revoked worker whose new join file has the wrong mode stays away, and
// nothing says why.
TEST(MembershipTest, ARevokedWorkerSaysWhyItsJoinFileCannotBeUsed) {
  TemporaryDirectory directory;
  const std::string own = directory.path() + "/controller";
  ASSERT_TRUE(MakeSecretDirectory(own).ok());
  const absl::Time now = absl::Now();
  ASSERT_TRUE(Authority::Init(directory.path() + "/authority", {"localhost"}, now).ok());
  const auto authority = Authority::Open(directory.path() + "/authority", now);
  ASSERT_TRUE(authority.ok()) << authority.status();
  const std::string key = *NewKey();
  const auto certificates = authority->Sign(
      *NewRequest(key, "w"),
      {.common_name = "w", .not_before = now, .not_after = now + absl::Hours(1), .client = true});
  ASSERT_TRUE(certificates.ok()) << certificates.status();
  ASSERT_TRUE(WriteSecret(own + "/key.pem", key).ok());
  ASSERT_TRUE(WriteFileAtomic(own + "/certificate.pem", *certificates).ok());
  ASSERT_TRUE(WriteFileAtomic(own + "/authority.pem", authority->certificate()).ok());
  const std::string invitation = directory.path() + "/invitation";
  auto membership = Membership::Open({.controller = {"127.0.0.1", 1},
                                      .directory = own,
                                      .join_file = invitation,
                                      .worker_id = "w",
                                      .hostname = "h"});
  ASSERT_TRUE(membership.ok()) << membership.status();
  ASSERT_TRUE(WriteSecret(invitation, "token\n" + authority->fingerprint() + "\n").ok());
  ASSERT_EQ(::chmod(invitation.c_str(), 0644), 0);
  (*membership)->Refused();
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE((*membership)->Current().ok());
  const std::string log = ::testing::internal::GetCapturedStderr();
  const size_t said = log.find("join_file_unusable");
  ASSERT_NE(said, log.npos) << log;
  EXPECT_NE(log.find("chmod", said), log.npos) << "what to do: " << log;
  EXPECT_EQ(log.find("join_file_unusable", said + 1), log.npos) << "said once: " << log;
}

// Bug it must catch: a worker whose disk fails for a moment at its start does not come back.
TEST(MembershipTest, FilesThatCannotBeReadForAMomentAreReadAgain) {
  TemporaryDirectory directory;
  const std::string own = directory.path() + "/controller";
  ASSERT_TRUE(MakeSecretDirectory(own).ok());
  ASSERT_TRUE(WriteSecret(own + "/key.pem", *NewKey()).ok());
  for (const char* file : {"certificate.pem", "authority.pem", "joined_with"}) {
    ASSERT_TRUE(WriteFileAtomic(absl::StrCat(own, "/", file), "something").ok());
  }
  const std::string invitation = directory.path() + "/invitation";
  ASSERT_TRUE(
      WriteSecret(invitation, absl::StrCat("token\nsha256:", std::string(64, '0'), "\n")).ok());
  for (const char* file : {"key.pem", "certificate.pem", "authority.pem", "joined_with"}) {
    for (const ReadFault fault : {ReadFault::kEio, ReadFault::kEmfile, ReadFault::kEacces}) {
      FaultyReads faulty(fault, file, 1);
      const auto membership = Membership::Open({.controller = {"127.0.0.1", 1},
                                                .directory = own,
                                                .join_file = invitation,
                                                .worker_id = "w",
                                                .hostname = "h"});
      EXPECT_TRUE(membership.ok()) << file << ": " << membership.status();
      EXPECT_EQ(faulty.met(), 1) << file;
    }
  }
}

// Bug it must catch: the main thread looks at the certificate each second, and hears no SIGTERM
// while it waits for a join.
TEST(MembershipTest, LookingAtTheCertificateWaitsForNoJoin) {
  ::signal(SIGPIPE, SIG_IGN);  // As the worker does.
  TemporaryDirectory directory;
  SilentController controller;
  const std::string invitation = directory.path() + "/invitation";
  ASSERT_TRUE(
      WriteSecret(invitation, absl::StrCat("token\nsha256:", std::string(64, '0'), "\n")).ok());
  auto membership = Membership::Open({.controller = {"127.0.0.1", controller.port()},
                                      .directory = directory.path() + "/controller",
                                      .join_file = invitation,
                                      .worker_id = "w",
                                      .hostname = "h"});
  ASSERT_TRUE(membership.ok()) << membership.status();
  std::atomic<bool> over = false;
  std::thread joining([&] {
    EXPECT_FALSE((*membership)->Current().ok());
    over = true;
  });
  controller.AwaitConnection();
  EXPECT_FALSE((*membership)->PageTls().has_value());
  EXPECT_FALSE(over);
  controller.End();
  joining.join();
}

}  // namespace
}  // namespace trainyard
