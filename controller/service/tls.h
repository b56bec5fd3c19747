// TLS of a controller that others than its own machine reach.

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

// What proves the controller: files, which may be replaced while it serves.
struct ServerCertificate {
  std::string key_path;
  std::string certificate_path;  // The key's certificate, then those between it and a root.
  SecretReaders key_readers = SecretReaders::kOwner;
};

// TLS 1.2 or newer. A client need not have a certificate; one that `authority` has not signed, or
// that has expired, ends the connection. FAILED_PRECONDITION: the files cannot be used by `now`.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsCredentials(
    const ServerCertificate& server, const Authority& authority, absl::Time now);

// The same for pages, whose readers must have a certificate of `authority`.
absl::StatusOr<TlsMaterial> TlsForPages(const ServerCertificate& server,
                                        const Authority& authority);

}  // namespace trainyard::controller
