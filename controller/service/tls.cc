#include "controller/service/tls.h"

#include <grpcpp/security/tls_credentials_options.h>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "security/certificates.h"
#include "security/secret_file.h"

namespace trainyard::controller {
namespace {

// How often gRPC checks whether the files have been replaced.
constexpr unsigned kLookEverySeconds = 1;

absl::Status Unusable(absl::string_view why, const ServerCertificate& server,
                      const Authority& authority) {
  const bool own = server.certificate_path != authority.server_path();
  return absl::FailedPreconditionError(absl::StrCat(
      "the certificate that proves this controller cannot be used: ", why,
      own ? ". Put a new one, and its key, where --tls-certificate and --tls-key say"
          : ". 'trainyard-controller init' with all names of this controller makes a new one"));
}

absl::StatusOr<Identity> ReadIdentity(const ServerCertificate& server, const Authority& authority) {
  absl::StatusOr<std::string> key = ReadSecret(server.key_path, server.key_readers);
  if (!key.ok()) return Unusable(key.status().message(), server, authority);
  absl::StatusOr<std::string> certificate = ReadFile(server.certificate_path, 1 << 20);
  if (!certificate.ok()) return Unusable(certificate.status().message(), server, authority);
  return Identity{.key_pem = *std::move(key), .certificate_pem = *std::move(certificate)};
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsCredentials(
    const ServerCertificate& server, const Authority& authority, absl::Time now) {
  ASSIGN_OR_RETURN(const Identity identity, ReadIdentity(server, authority));
  if (const absl::Status status = CheckIdentity(identity, now); !status.ok()) {
    return Unusable(absl::StrCat(server.certificate_path, ": ", status.message()), server,
                    authority);
  }
  using grpc::experimental::FileWatcherCertificateProvider;
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<FileWatcherCertificateProvider>(server.key_path, server.certificate_path,
                                                       authority.certificate_path(),
                                                       kLookEverySeconds));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<TlsMaterial> TlsForPages(const ServerCertificate& server,
                                        const Authority& authority) {
  ASSIGN_OR_RETURN(Identity identity, ReadIdentity(server, authority));
  return TlsMaterial{.key = std::move(identity.key_pem),
                     .certificates = std::move(identity.certificate_pem),
                     .client_authorities = authority.certificate()};
}

}  // namespace trainyard::controller
