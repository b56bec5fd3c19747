// The one place where a call is let in or not: before gRPC has read the request, and before any
// handler. Whatever the proto files do not allow is refused. The readers of pages come by here,
// too.

#pragma once

#include <grpcpp/grpcpp.h>

#include <optional>
#include <string>

#include "absl/types/span.h"
#include "controller/access/audit.h"
#include "controller/access/grants.h"
#include "controller/access/issuers.h"
#include "controller/access/local_token.h"
#include "controller/access/methods.h"
#include "controller/access/principal.h"
#include "controller/access/rates.h"
#include "controller/metrics.h"

namespace trainyard::controller {

class Gate final : public grpc::AuthMetadataProcessor {
 public:
  struct Parts {  // All outlive the gate.
    const Grants& grants;
    const Issuers& issuers;
    const Clock& clock;
    ControllerMetrics& metrics;
    Audit& audit;
  };
  // Without a local token, callers need a grant or a token of an issuer.
  Gate(std::optional<LocalToken> local, const Parts& parts);

  // UNAUTHENTICATED: no credential, or none that the controller knows. PERMISSION_DENIED: the
  // caller's roles do not include one that the method wants, or an issuer's rules give the caller
  // none. RESOURCE_EXHAUSTED: the caller calls too often.
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata* response) override;
  bool IsBlocking() const override { return false; }

  // The reader of a page who shows this token, where he may call all of `methods`, as
  // "/SERVICE/NAME": what the page says is theirs to say. Counts as one call. `peer`: where the
  // reader comes from. Errors: Process'.
  absl::StatusOr<Principal> AdmitReader(absl::string_view token, absl::string_view peer,
                                        absl::Span<const absl::string_view> methods);

  const std::optional<LocalToken>& local() const { return local_; }
  // Whom Process let in, as of now. UNAUTHENTICATED, PERMISSION_DENIED: the grant or the rule has
  // been revoked since, or the credential has expired.
  absl::StatusOr<Principal> CallerOf(const grpc::ServerContextBase& context) const;

 private:
  absl::StatusOr<Principal> Authenticate(const InputMetadata& metadata,
                                         const grpc::AuthContext& peer) const;
  absl::StatusOr<Principal> OfToken(absl::string_view token) const;
  absl::StatusOr<Principal> OfCertificate(absl::string_view uri) const;
  // Whether the caller may call all of the methods, now. Counts what it refuses.
  absl::Status Check(const absl::StatusOr<Principal>& caller,
                     absl::Span<const absl::string_view> methods);
  absl::Status CheckRole(const Principal& caller, absl::string_view path, const v1::Access& method);
  absl::Status Refuse(const absl::Status& status, const char* reason);

  const Methods methods_;
  const std::optional<LocalToken> local_;
  const Parts parts_;
  Rates rates_;
};

}  // namespace trainyard::controller
