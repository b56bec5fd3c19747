#include "security/controller_proof.h"

#include <openssl/ssl.h>

#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "security/certificates.h"
#include "security/openssl.h"

namespace trainyard {
namespace {

using openssl::Owned;

using Context = Owned<SSL_CTX, SSL_CTX_free>;

// Short, because a connection to the same controller has just got as far as its certificate.
constexpr absl::Duration kPatienceForReasons = absl::Seconds(5);

std::string Pem(X509* certificate) {
  const openssl::Bio out(BIO_new(BIO_s_mem()));
  return PEM_write_bio_X509(out.get(), certificate) == 1 ? openssl::Text(out) : "";
}

// Runs the handshake of a BIO that does not block. Returns false if it fails or takes too long.
bool Shake(BIO* connection, absl::Duration deadline) {
  for (;;) {
    if (BIO_do_handshake(connection) == 1) return true;
    if (!BIO_should_retry(connection) || RealClock().Monotonic() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
}

// Returns why a connection failed, in the words of the system or its resolver. OpenSSL's last error
// then has only "nbio connect error" or "system lib" as its reason.
std::string WhyUnreached() {
  std::string why = "no answer";
  const char* data = nullptr;
  int flags = 0;
  while (const unsigned long error = ERR_get_error_all(nullptr, nullptr, nullptr, &data, &flags)) {
    if (ERR_SYSTEM_ERROR(error)) return std::system_category().message(ERR_GET_REASON(error));
    if ((flags & ERR_TXT_STRING) != 0 && *data != '\0') why = data;
  }
  return why;
}

// Returns the certificates that the controller shows as PEM, its own first.
absl::StatusOr<std::vector<std::string>> Shown(const Address& controller, absl::Duration patience) {
  const openssl::ErrorScope errors;
  const std::string where = absl::StrCat("the controller at ", controller.ToString());
  const Context context(SSL_CTX_new(TLS_client_method()));
  const openssl::Bio connection(BIO_new_ssl_connect(context.get()));
  SSL* tls = nullptr;
  BIO_get_ssl(connection.get(), &tls);
  // gRPC's servers refuse clients that do not ask for HTTP/2.
  static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  if (tls == nullptr || SSL_set_alpn_protos(tls, kHttp2, sizeof(kHttp2)) != 0) {
    return openssl::Error(absl::StatusCode::kInternal, "TLS");
  }
  SSL_set_tlsext_host_name(tls, controller.host.c_str());
  BIO_set_conn_hostname(connection.get(), controller.ToString().c_str());
  BIO_set_nbio(connection.get(), 1);
  const absl::Duration deadline = RealClock().Monotonic() + patience;
  if (!Shake(connection.get(), deadline)) {
    const bool answered = ERR_GET_LIB(ERR_peek_last_error()) == ERR_LIB_SSL;
    if (!answered || RealClock().Monotonic() >= deadline) {
      return absl::UnavailableError(absl::StrCat("cannot reach ", where, ": ", WhyUnreached()));
    }
    return openssl::Error(absl::StatusCode::kFailedPrecondition,
                          absl::StrCat(where, " does not speak TLS"));
  }
  std::vector<std::string> shown;
  STACK_OF(X509)* const chain = SSL_get_peer_cert_chain(tls);
  for (int i = 0; i < sk_X509_num(chain); ++i) shown.push_back(Pem(sk_X509_value(chain, i)));
  return shown;
}

}  // namespace

absl::StatusOr<std::string> FetchAuthority(const Address& controller,
                                           const std::string& fingerprint,
                                           absl::Duration patience) {
  ASSIGN_OR_RETURN(const std::vector<std::string> shown, Shown(controller, patience));
  for (const std::string& pem : shown) {
    const absl::StatusOr<std::string> found = Fingerprint(pem);
    if (found.ok() && *found == fingerprint) return pem;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the controller at ", controller.ToString(), " shows no certificate with the fingerprint ",
      fingerprint,
      ": either the token belongs to another cluster, or somebody else answers there"));
}

std::string ExplainProof(absl::string_view error, const Address& controller) {
  std::string explained(error);
  if (!absl::StrContains(error, "certificate verify failed")) return explained;
  const auto shown = Shown(controller, kPatienceForReasons);
  if (!shown.ok()) return explained;
  for (const std::string& pem : *shown) {
    const absl::Status time = CheckTime(pem, RealClock().Now());
    if (!absl::IsFailedPrecondition(time)) continue;
    absl::StrAppend(&explained, ". What the controller shows there: ", time.message(),
                    ". Set the clock that is wrong, or give the controller a new certificate "
                    "(docs/access.md)");
    return explained;
  }
  return explained;
}

}  // namespace trainyard
