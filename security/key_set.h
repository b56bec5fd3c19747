// The public keys of an issuer of JSON Web Tokens, read from the issuer's JWKS (RFC 7517, 7518,
// 8037). Checks signatures with them (RFC 7515, section 5.2).

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace trainyard {

// Immutable, so it may be used from any thread. Copies share the keys.
class KeySet {
 public:
  // Reads a JWKS. Keys that cannot check a signature of RS256, ES256 or EdDSA (Ed25519) are left
  // out, as RFC 7517 section 5 says: those of other types, uses, curves or algorithms, and weak
  // ones. INVALID_ARGUMENT: the text is not a JWKS; the text has more than 256 KiB, more than 100
  // keys, or no key that can be used; or the text holds a private key, which every reader of the
  // text now has.
  static absl::StatusOr<KeySet> Parse(absl::string_view json);

  size_t size() const { return keys_.size(); }

  // What a token's header states about its signature.
  struct Claimed {
    std::string algorithm;            // "RS256", "ES256", "EdDSA"
    absl::optional<std::string> kid;  // The key that signed. Absent: any key may have signed.
  };
  // Checks a signature with each key that has the claimed algorithm and `kid`. A key is used for
  // its own algorithm alone, whatever the token claims. UNAUTHENTICATED: there is no such key, or
  // none of these keys has made the signature.
  absl::Status Verify(const Claimed& claimed, absl::string_view text,
                      absl::string_view signature) const;

 private:
  struct Key;
  KeySet() = default;

  // Shared, because copies of a set outlive one another in the threads that verify.
  std::vector<std::shared_ptr<const Key>> keys_;
};

}  // namespace trainyard
