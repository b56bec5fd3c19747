#include "controller/service/tls.h"

#include <grpcpp/security/tls_credentials_options.h>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "security/certificates.h"
#include "security/secret_file.h"

namespace trainyard::controller {
namespace {

// How often gRPC looks whether the files have been replaced.
constexpr unsigned kLookEverySeconds = 1;

absl::StatusOr<Identity> ReadIdentity(const ServerCertificate& server) {
  Identity identity;
  ASSIGN_OR_RETURN(identity.key_pem, ReadSecret(server.key_path, server.key_readers));
  ASSIGN_OR_RETURN(identity.certificate_pem, ReadFile(server.certificate_path, 1 << 20));
  return identity;
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsCredentials(
    const ServerCertificate& server, const Authority& authority, absl::Time now) {
  ASSIGN_OR_RETURN(const Identity identity, ReadIdentity(server));
  if (const absl::Status status = CheckIdentity(identity, now); !status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(server.certificate_path, ": ", status.message()));
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
  ASSIGN_OR_RETURN(Identity identity, ReadIdentity(server));
  return TlsMaterial{.key = std::move(identity.key_pem),
                     .certificates = std::move(identity.certificate_pem),
                     .client_authorities = authority.certificate()};
}

}  // namespace trainyard::controller
