// The parts of a certificate, for certificates.cc: names, times, numbers and extensions.

#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "security/certificates.h"
#include "security/openssl.h"

namespace trainyard::openssl {

// Sets the only entry of a name. INVALID_ARGUMENT: not 1 to 64 characters of UTF-8, or control
// characters among them.
absl::Status SetCommonName(X509_NAME* name, absl::string_view common_name);

// Sets the version, a random serial number of 128 bits, the key and the time of a certificate.
absl::Status SetBasics(X509* certificate, EVP_PKEY* key, absl::Time not_before,
                       absl::Time not_after);

// Adds an extension whose value is a constant in the language of OpenSSL's x509v3_config. Texts
// from outside must not pass through that language: a comma in a name would add another name.
absl::Status AddExtension(X509* certificate, const X509* issuer, int nid, const char* value);

// Adds the subjectAltName that holds the URIs, hosts and addresses of `facts`, if there are any.
absl::Status AddNames(X509* certificate, const CertificateFacts& facts);

// Reads the names of a subjectAltName into `facts`.
absl::Status ReadNames(const X509* certificate, CertificateFacts& facts);
// Reads the only common name of a certificate; empty where there is none.
absl::StatusOr<std::string> ReadCommonName(const X509* certificate);
absl::StatusOr<absl::Time> ReadTime(const ASN1_TIME* time);

}  // namespace trainyard::openssl
