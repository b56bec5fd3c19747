#include "common/http/credentials.h"

#include <gnutls/x509.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

absl::Status Invalid(const char* what, int error) {
  return absl::InvalidArgumentError(absl::StrCat("TLS ", what, ": ", gnutls_strerror(error)));
}

// GnuTLS takes pointers that are not to const, and does not write through them.
gnutls_datum_t Datum(const std::string& text) {
  return {reinterpret_cast<unsigned char*>(const_cast<char*>(text.data())), unsigned(text.size())};
}

}  // namespace

TlsCredentials::TlsCredentials(Owned credentials)
    : credentials_(std::move(credentials)),
      wanted_of_clients_{
          .type = GNUTLS_DT_KEY_PURPOSE_OID,
          .data = reinterpret_cast<unsigned char*>(const_cast<char*>(GNUTLS_KP_TLS_WWW_CLIENT)),
          .size = 0} {}

absl::StatusOr<std::shared_ptr<const TlsCredentials>> TlsCredentials::Create(
    const TlsMaterial& material) {
  gnutls_certificate_credentials_t made = nullptr;
  if (const int error = gnutls_certificate_allocate_credentials(&made); error != GNUTLS_E_SUCCESS) {
    return absl::ResourceExhaustedError(gnutls_strerror(error));
  }
  Owned credentials(made);
  const gnutls_datum_t key = Datum(material.key), certificates = Datum(material.certificates);
  if (const int error =
          gnutls_certificate_set_x509_key_mem(made, &certificates, &key, GNUTLS_X509_FMT_PEM);
      error < 0) {
    return Invalid("key and certificates", error);
  }
  const gnutls_datum_t authorities = Datum(material.client_authorities);
  // The number of certificates, or an error.
  const int read = gnutls_certificate_set_x509_trust_mem(made, &authorities, GNUTLS_X509_FMT_PEM);
  if (read <= 0) {
    return Invalid("authorities of clients", read < 0 ? read : GNUTLS_E_NO_CERTIFICATE_FOUND);
  }
  return std::shared_ptr<const TlsCredentials>(new TlsCredentials(std::move(credentials)));
}

absl::Status TlsCredentials::ApplyTo(gnutls_session_t session) const {
  if (const int error = gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials_.get());
      error != GNUTLS_E_SUCCESS) {
    return absl::ResourceExhaustedError(gnutls_strerror(error));
  }
  gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
  gnutls_session_set_verify_cert2(session, &wanted_of_clients_, 1, 0);
  return absl::OkStatus();
}

}  // namespace trainyard
