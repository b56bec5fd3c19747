// Proves that no text makes a service ask for a passphrase on its terminal, and wait for one.

#include <gmock/gmock.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "common/check.h"
#include "security/certificates.h"
#include "tests/testing/process.h"

namespace trainyard {
namespace {

// What a child process with a terminal of its own writes there while it runs `read`; it is ended
// when it has written something, which it must not do.
std::string Asked(const std::function<void()>& read) {
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  CHECK(child >= 0) << errno;
  if (child == 0) {
    read();
    ::_exit(0);
  }
  char text[256] = {};
  const ssize_t n = ::read(terminal, text, sizeof(text) - 1);  // Fails when the child has ended.
  testing::Kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(terminal);
  return std::string(text, n > 0 ? size_t(n) : 0);
}

std::string Encrypted(const std::string& what) {
  return "-----BEGIN " + what +
         "-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00112233445566778899AABBCCDDEEFF\n\n"
         "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n-----END " +
         what + "-----\n";
}

TEST(Passphrase, IsNeverAskedFor) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  const Identity authority = NewAuthority("x", now, now + absl::Hours(1)).value();
  CertificateFacts facts;
  facts.client = true;
  EXPECT_EQ(Asked([&] { (void)Sign(authority, Encrypted("CERTIFICATE REQUEST"), facts); }), "");
  EXPECT_EQ(Asked([&] { (void)NewRequest(Encrypted("EC PRIVATE KEY"), "x"); }), "");
  EXPECT_EQ(Asked([&] { (void)ReadCertificate(Encrypted("CERTIFICATE")); }), "");
  EXPECT_EQ(Asked([&] {
              (void)CheckIdentity({authority.key_pem, Encrypted("CERTIFICATE")}, now);
            }),
            "");
}

}  // namespace
}  // namespace trainyard
