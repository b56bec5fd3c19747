// The credentials of a server for TLS. Both sides may show a certificate.

#pragma once

#include <gnutls/gnutls.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainyard {

// Every text is PEM.
struct TlsMaterial {
  std::string key;                 // The server's private key.
  std::string certificates;        // The key's certificate, then those between it and a root.
  std::string client_authorities;  // A client's certificate must be signed by one of these.

  bool operator==(const TlsMaterial&) const = default;
};

// Whether a server's clients must show a certificate. A certificate that has expired, or that no
// authority has signed for clients, is refused in both cases.
enum class ClientCertificate { kRequired, kRequested };

// TLS 1.2 and 1.3, and nothing older.
inline constexpr char kTlsPriorities[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

// Whether the client of a session has shown a certificate that an authority of the server has
// signed for clients and that has not expired. The session's handshake must be over.
bool HasGoodCertificate(gnutls_session_t session);

// Immutable, thread-safe. Must outlive the sessions that use it.
class TlsCredentials {
 public:
  // INVALID_ARGUMENT: a text cannot be read, or the key does not belong to the first certificate.
  static absl::StatusOr<std::shared_ptr<const TlsCredentials>> Create(const TlsMaterial& material);

  // Makes a new server session use these credentials. The handshake then succeeds only if the
  // client shows a certificate that an authority has signed for clients and that has not expired,
  // or if a certificate is merely requested and the client shows none.
  absl::Status ApplyTo(gnutls_session_t session, ClientCertificate wanted) const;

 private:
  struct Free {
    void operator()(gnutls_certificate_credentials_t credentials) const {
      gnutls_certificate_free_credentials(credentials);
    }
  };
  using Owned = std::unique_ptr<gnutls_certificate_credentials_st, Free>;
  explicit TlsCredentials(Owned credentials) : credentials_(std::move(credentials)) {}

  const Owned credentials_;
};

}  // namespace trainyard
