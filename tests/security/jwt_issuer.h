// What the tests of JSON Web Tokens share: an issuer with a key of each kind, and a policy for it.

#pragma once

#include <gmock/gmock.h>
#include <openssl/err.h>

#include <array>
#include <string>
#include <vector>

#include "security/jwt.h"
#include "tests/security/jwt_signer.h"

namespace trainyard::testing {

inline const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

// Made once: a key of RSA takes a moment.
inline const std::array<JwtSigner, 3>& Signers() {
  static const std::array<JwtSigner, 3> signers{JwtSigner("RS256"), JwtSigner("ES256"),
                                                JwtSigner("EdDSA")};
  return signers;
}

inline KeySet Keys(const std::vector<nlohmann::json>& jwks) {
  return KeySet::Parse(nlohmann::json{{"keys", jwks}}.dump()).value();
}

class Jwt : public ::testing::Test {
 protected:
  // No test may leave an error in the thread's queue: gRPC would take it for one of its own.
  ~Jwt() override { EXPECT_EQ(ERR_peek_error(), 0u); }

  static nlohmann::json Claims() {
    return {{"iss", "https://issuer.example.org"},
            {"aud", "trainyard"},
            {"sub", "ada"},
            {"exp", absl::ToUnixSeconds(kNow) + 300},
            {"iat", absl::ToUnixSeconds(kNow) - 10}};
  }
  static nlohmann::json With(const char* name, const nlohmann::json& value) {
    nlohmann::json claims = Claims();
    claims[name] = value;
    return claims;
  }
  static nlohmann::json Without(const char* name) {
    nlohmann::json claims = Claims();
    claims.erase(name);
    return claims;
  }
  absl::StatusOr<nlohmann::json> Verify(absl::string_view token) const {
    return VerifyJwt(token, keys_, policy_, kNow);
  }
  absl::StatusOr<nlohmann::json> VerifyClaims(const nlohmann::json& claims) const {
    return Verify(signer_.Token(signer_.Header(), claims));
  }
  static void ExpectRefused(const absl::StatusOr<nlohmann::json>& claims,
                            const std::string& words) {
    EXPECT_EQ(claims.status().code(), absl::StatusCode::kUnauthenticated)
        << claims.status() << ", wanted: " << words;
    EXPECT_THAT(std::string(claims.status().message()), ::testing::HasSubstr(words));
  }

  const JwtSigner& signer_ = Signers()[1];
  const KeySet keys_ = Keys({Signers()[0].Jwk(), Signers()[1].Jwk(), Signers()[2].Jwk()});
  JwtPolicy policy_{
      "https://issuer.example.org", "trainyard", {"RS256", "ES256", "EdDSA"}, absl::Seconds(30)};
};

}  // namespace trainyard::testing
