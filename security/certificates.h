// Keys and X.509 certificates. A cluster has an authority of its own, whose certificates say who
// owns a key.
//
// A machine makes a key and a request. The authority signs the facts that it knows of the machine:
//
//   key = NewKey()   request = NewRequest(key, "worker-1")   Sign(authority, request, facts)
//
// Every text is PEM. All functions may be called from any thread. Errors carry OpenSSL's reason.
// Sources: RFC 5280 (certificates), RFC 2986 (requests).

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard {

// A certificate's owner looks so often whether it must be renewed, and waits so long after a
// renewal that failed.
inline constexpr absl::Duration kLookForRenewalEvery = absl::Seconds(10);
inline constexpr absl::Duration kPauseAfterFailedRenewal = absl::Minutes(1);

// A private key, and the certificate that says whose key it is.
struct Identity {
  std::string key_pem;
  // The key's own certificate first, then the certificates between this one and a root.
  std::string certificate_pem;
};

// The facts that an authority states about the owner of a key.
struct CertificateFacts {
  std::string common_name = {};                   // 1 to 64 characters.
  std::vector<std::string> uris = {};             // The names in subjectAltName.
  std::vector<std::string> dns_names = {};        // Hosts by name; no wildcards.
  std::vector<std::string> addresses = {};        // Hosts by number: "10.0.0.1", "::1".
  absl::Time not_before = absl::InfinitePast();   // The first second in which it holds.
  absl::Time not_after = absl::InfiniteFuture();  // The last second in which it holds.
  bool server = false;                            // Extended key usage: may accept TLS connections.
  bool client = false;                            // Extended key usage: may open TLS connections.
};

// Makes a private key: ECDSA on the curve P-256, as PKCS#8.
absl::StatusOr<std::string> NewKey();

// Makes an authority that signs its own certificate, may sign certificates of others, and may make
// no further authorities. INVALID_ARGUMENT: `name` has not 1 to 64 characters, or the time ends
// before it begins, or lies outside the years 1 to 9999.
absl::StatusOr<Identity> NewAuthority(absl::string_view name, absl::Time not_before,
                                      absl::Time not_after);

// Makes a request (PKCS#10) for a certificate of this key, and signs the request with the key.
// INVALID_ARGUMENT: `key_pem` is no private key, or `common_name` has not 1 to 64 characters.
absl::StatusOr<std::string> NewRequest(absl::string_view key_pem, absl::string_view common_name);

// Makes a certificate in which `authority` states `facts` about the key of `request_pem`. Only the
// key of the request is used; names and rights that the request asks for are ignored. The
// certificate does not hold longer than the authority's own. If another authority has signed this
// one, the caller must append authority.certificate_pem.
//
// INVALID_ARGUMENT: the text is not a request; the request's signature is not by the request's key,
//   so the sender may not have the key; the key is weak (CheckStrength of security/openssl.h); or a
//   fact cannot stand in a certificate.
// FAILED_PRECONDITION: `authority` may not sign certificates, or its time is over before the
//   certificate's begins.
absl::StatusOr<std::string> Sign(const Identity& authority, absl::string_view request_pem,
                                 const CertificateFacts& facts);

// Returns the facts in the first certificate of a text. Does not check the signature: the caller
// has the certificate from TLS, which has checked it, or from a file that the caller trusts.
// INVALID_ARGUMENT: the text holds no certificate, or one whose names are ambiguous: two common
//   names, or a name with a NUL in it. `server` and `client` are false where the certificate does
//   not say what the key may be used for.
absl::StatusOr<CertificateFacts> ReadCertificate(absl::string_view certificate_pem);

// Returns "sha256:" and the lower-case hexadecimal SHA-256 of the first certificate's DER.
absl::StatusOr<std::string> Fingerprint(absl::string_view certificate_pem);

// Returns the certificates of a text, each as PEM, in their order.
std::vector<std::string> SplitCertificates(absl::string_view certificates_pem);

// Returns the certificate of a text that has this fingerprint. NOT_FOUND: there is none.
absl::StatusOr<std::string> FindCertificate(absl::string_view certificates_pem,
                                            absl::string_view fingerprint);

// Returns the lower-case hexadecimal SHA-256 of the public key that a request is for. Errors: those
// of Sign that concern the request.
absl::StatusOr<std::string> KeyFingerprint(absl::string_view request_pem);

// Checks that the first certificate of a text holds at `now`.
// INVALID_ARGUMENT: the text holds none. FAILED_PRECONDITION: it has expired, or is not valid yet;
//   the message says which one and when.
absl::Status CheckTime(absl::string_view certificate_pem, absl::Time now);

// Checks that an identity can be used at `now`.
// INVALID_ARGUMENT: the key or a certificate cannot be read, or the two do not belong together.
// FAILED_PRECONDITION: one of the certificates has expired, or is not valid yet; the message says
//   which one and when.
absl::Status CheckIdentity(const Identity& identity, absl::Time now);

}  // namespace trainyard
