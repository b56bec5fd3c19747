// What the tests of certificates share: an authority, a key with its request, and the program
// openssl.

#pragma once

#include <gmock/gmock.h>
#include <openssl/err.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "security/certificates.h"
#include "tests/security/openssl_program.h"

namespace trainyard::testing {

inline const absl::Time kBegin = absl::FromUnixSeconds(1'700'000'000);  // 2023-11-14T22:13:20Z
inline const absl::Time kEnd = kBegin + absl::Hours(24 * 365);

class Certificates : public ::testing::Test {
 protected:
  Certificates()
      : authority_(NewAuthority("Test authority", kBegin, kEnd).value()),
        key_(NewKey().value()),
        request_(NewRequest(key_, "whoever").value()) {}
  // No test may leave an error in the thread's queue: gRPC would take it for one of its own.
  ~Certificates() override { EXPECT_EQ(ERR_peek_error(), 0u); }

  static CertificateFacts Facts() {
    return {.common_name = "worker-1",
            .uris = {"trainyard://cluster/worker/1"},
            .dns_names = {"worker-1.example.org", "worker-1"},
            .addresses = {"10.0.0.1", "::1"},
            .not_before = kBegin,
            .not_after = kBegin + absl::Hours(24),
            .server = true,
            .client = true};
  }
  static void ExpectInvalid(const absl::Status& status, const std::string& words) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(words));
  }
  // What `openssl x509 -text` says of a certificate.
  std::string Described(const std::string& certificate) const {
    openssl_.Put("described.pem", certificate);
    return openssl_.Must("x509 -in described.pem -noout -text");
  }
  // The request that `openssl req` makes with these arguments.
  std::string Requested(absl::string_view arguments) const {
    openssl_.Must(
        absl::StrCat("req -new -nodes -keyout theirs.key -out theirs.csr -subj /CN=x ", arguments));
    return openssl_.Get("theirs.csr");
  }

  const OpensslProgram openssl_;
  const Identity authority_;
  const std::string key_;
  const std::string request_;
};

}  // namespace trainyard::testing
