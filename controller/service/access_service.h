// Serves AccessService: who a caller is, tokens, and how a machine becomes a worker.

#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "common/clock.h"
#include "controller/access/audit.h"
#include "controller/access/gate.h"
#include "controller/access/grants.h"
#include "controller/service/executor.h"
#include "security/authority.h"
#include "trainyard/v1/access.grpc.pb.h"

namespace trainyard::controller {

class AccessService final : public v1::AccessService::CallbackService {
 public:
  // All must outlive the service. Null authority: the controller has no TLS, and workers cannot
  // join.
  struct Parts {
    const Clock& clock;
    const Gate& gate;
    Grants& grants;
    const Authority* authority;
    Audit& audit;
  };
  explicit AccessService(const Parts& parts) : parts_(parts) {}

  grpc::ServerUnaryReactor* WhoAmI(grpc::CallbackServerContext* context,
                                   const v1::WhoAmIRequest* request,
                                   v1::WhoAmIResponse* response) override;
  grpc::ServerUnaryReactor* CreateToken(grpc::CallbackServerContext* context,
                                        const v1::CreateTokenRequest* request,
                                        v1::CreateTokenResponse* response) override;
  grpc::ServerUnaryReactor* ListGrants(grpc::CallbackServerContext* context,
                                       const v1::ListGrantsRequest* request,
                                       v1::ListGrantsResponse* response) override;
  grpc::ServerUnaryReactor* RevokeGrant(grpc::CallbackServerContext* context,
                                        const v1::RevokeGrantRequest* request,
                                        v1::RevokeGrantResponse* response) override;
  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest* request,
                                 v1::JoinResponse* response) override;
  grpc::ServerUnaryReactor* RenewCertificate(grpc::CallbackServerContext* context,
                                             const v1::RenewCertificateRequest* request,
                                             v1::RenewCertificateResponse* response) override;
  grpc::ServerUnaryReactor* ListAudit(grpc::CallbackServerContext* context,
                                      const v1::ListAuditRequest* request,
                                      v1::ListAuditResponse* response) override;

 private:
  // Runs `work` on a thread that may wait for the disk, unless the caller has given up by then.
  // `work` gets the caller, and must finish the reactor. RESOURCE_EXHAUSTED: too many calls wait.
  template <typename Work>
  grpc::ServerUnaryReactor* Wait(Executor& executor, grpc::CallbackServerContext* context,
                                 Work work);
  // Answers with the result of `handle`, which gets the caller and may wait for the disk.
  template <typename Handle>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, Handle handle);
  // Does the same for a change. `handle` fills in the audit entry, which is durable before the
  // answer.
  template <typename Handle>
  grpc::ServerUnaryReactor* Change(grpc::CallbackServerContext* context, const char* method,
                                   Handle handle);

  const Parts parts_;
  Executor reading_, changing_;  // Reads do not wait for changes, which wait for syncs of the disk.
};

}  // namespace trainyard::controller
