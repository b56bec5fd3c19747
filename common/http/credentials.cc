#include "common/http/credentials.h"

#include <gnutls/x509.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

absl::Status Invalid(const char* what, int error) {
  return absl::InvalidArgumentError(absl::StrCat("TLS ", what, ": ", gnutls_strerror(error)));
}

// GnuTLS takes pointers to non-const data, but does not write through them.
gnutls_datum_t Datum(const std::string& text) {
  return {reinterpret_cast<unsigned char*>(const_cast<char*>(text.data())), unsigned(text.size())};
}

bool ShowsCertificate(gnutls_session_t session) {
  unsigned count = 0;
  return gnutls_certificate_get_peers(session, &count) != nullptr && count > 0;
}

// Runs at the end of a handshake. GnuTLS itself checks that a client shows a certificate if one is
// required.
int RefuseBadCertificate(gnutls_session_t session) {
  return !ShowsCertificate(session) || HasGoodCertificate(session) ? 0 : GNUTLS_E_CERTIFICATE_ERROR;
}

}  // namespace

bool HasGoodCertificate(gnutls_session_t session) {
  gnutls_typed_vdata_st wanted = {
      .type = GNUTLS_DT_KEY_PURPOSE_OID,
      .data = reinterpret_cast<unsigned char*>(const_cast<char*>(GNUTLS_KP_TLS_WWW_CLIENT)),
      .size = 0};
  unsigned wrong = 0;
  return ShowsCertificate(session) &&
         gnutls_certificate_verify_peers(session, &wanted, 1, &wrong) == GNUTLS_E_SUCCESS &&
         wrong == 0;
}

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

absl::Status TlsCredentials::ApplyTo(gnutls_session_t session, ClientCertificate wanted) const {
  if (const int error = gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials_.get());
      error != GNUTLS_E_SUCCESS) {
    return absl::ResourceExhaustedError(gnutls_strerror(error));
  }
  gnutls_certificate_server_set_request(
      session, wanted == ClientCertificate::kRequired ? GNUTLS_CERT_REQUIRE : GNUTLS_CERT_REQUEST);
  gnutls_session_set_verify_function(session, &RefuseBadCertificate);
  return absl::OkStatus();
}

}  // namespace trainyard
