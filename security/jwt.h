// Verifies JSON Web Tokens (RFC 7519) with the keys of their issuer. Nothing here makes tokens.
//
//   keys = KeySet::Parse(what the issuer publishes)   VerifyJwt(text, keys, policy, now)
//
// Nothing proves the header of a token. The header may only choose among the algorithms of the
// policy and the keys of the set. Keys in a header, and addresses of keys, are ignored. No header
// can make a public key the secret of an HMAC.

#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "security/key_set.h"

namespace trainyard {

// What a token must say to be accepted.
struct JwtPolicy {
  std::string issuer;                   // Must be the claim iss.
  std::string audience;                 // Must be the claim aud, or one of its strings.
  std::vector<std::string> algorithms;  // Of "RS256", "ES256" and "EdDSA" (Ed25519).
  absl::Duration leeway;                // How far clocks may differ: 0 to 10 minutes.
  // How long a token may be good, from its iat, or from now where it has none; more than 0. A token
  // that is stolen is good until it expires.
  absl::Duration longest = absl::Hours(24);
};

// INVALID_ARGUMENT: an empty field, an unknown algorithm, or a leeway or a longest time out of
// range.
absl::Status CheckPolicy(const JwtPolicy& policy);

// Returns the claims of a token that `policy` accepts. Any thread may call it.
//
// INVALID_ARGUMENT: CheckPolicy refuses the policy.
// UNAUTHENTICATED: the token is longer than 16 KiB or badly formed; has a member twice, or the
//   member crit; is signed by another algorithm or key; has no exp, has expired, or is good for too
//   long; is not valid yet by nbf or iat; or is by another issuer or for another audience. Messages
//   do not quote the token.
absl::StatusOr<nlohmann::json> VerifyJwt(absl::string_view text, const KeySet& keys,
                                         const JwtPolicy& policy, absl::Time now);

// Returns the issuer that a token names. Nothing proves the name: a caller may choose by it which
// issuer's keys and policy to give to VerifyJwt, and nothing else. UNAUTHENTICATED: the token is
// longer than 16 KiB or badly formed.
absl::StatusOr<std::string> ClaimedIssuer(absl::string_view text);

// The part of VerifyJwt that checks the signature (RFC 7515) and returns the payload, of which
// nothing is known but who signed it. To accept a token, call VerifyJwt.
absl::StatusOr<std::string> VerifySignature(absl::string_view text, const KeySet& keys,
                                            const std::vector<std::string>& algorithms);

}  // namespace trainyard
