// TLS of a controller that other machines reach.

#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/credentials.h"
#include "security/authority.h"
#include "security/secret_file.h"

namespace trainyard::controller {

// The files that prove the controller. They may be replaced while the controller serves.
struct ServerCertificate {
  std::string key_path;
  std::string certificate_path;  // The key's certificate, then those between it and a root.
  SecretReaders key_readers = SecretReaders::kOwner;
};

// For TLS 1.2 or newer. A client need not have a certificate. A certificate that `authority` has
// not signed, or that has expired, ends the connection. FAILED_PRECONDITION: the files cannot be
// used at `now`.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsCredentials(
    const ServerCertificate& server, const Authority& authority, absl::Time now);

// For pages, whose readers must have a certificate of `authority`.
absl::StatusOr<TlsMaterial> TlsForPages(const ServerCertificate& server,
                                        const Authority& authority);

}  // namespace trainyard::controller
