// Decides for every call whether its caller may make it. gRPC asks before it reads the request and
// before any handler runs. A call that the proto files do not allow is refused. Readers of pages
// are checked here, too.

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

  // UNIMPLEMENTED: the request is compressed, or there is no such method. UNAUTHENTICATED: no
  // credential, or none that the controller knows. PERMISSION_DENIED: the caller's roles do not
  // include one that the method wants, or an issuer's rules give the caller none.
  // RESOURCE_EXHAUSTED: the caller calls too often.
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata* response) override;
  bool IsBlocking() const override { return false; }

  // Returns who shows this token to read a page. The reader must be allowed to call all of
  // `methods` ("/SERVICE/NAME"), because the page shows what those methods answer. Counts as one
  // call. `peer`: the address that the reader comes from. Errors: those of Process.
  absl::StatusOr<Principal> AdmitReader(absl::string_view token, absl::string_view peer,
                                        absl::Span<const absl::string_view> methods);

  const std::optional<LocalToken>& local() const { return local_; }
  // Returns the caller of a call that Process has let in, with the rights that the caller has now.
  // UNAUTHENTICATED, PERMISSION_DENIED: since then the grant or the rule was revoked, or the
  // credential has expired.
  absl::StatusOr<Principal> CallerOf(const grpc::ServerContextBase& context) const;

 private:
  absl::StatusOr<Principal> Authenticate(const InputMetadata& metadata,
                                         const grpc::AuthContext& peer) const;
  absl::StatusOr<Principal> OfToken(absl::string_view token) const;
  absl::StatusOr<Principal> OfCertificate(absl::string_view uri) const;
  // Checks that the caller may call all of the methods now. Counts refusals in a metric.
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
