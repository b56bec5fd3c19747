// Serves ClusterService with the coordinator's data.

#pragma once

#include <grpcpp/grpcpp.h>

#include "controller/access/gate.h"
#include "controller/book/job_book.h"
#include "controller/workers/coordinator.h"
#include "trainyard/v1/cluster.grpc.pb.h"

namespace trainyard::controller {

class ClusterService final : public v1::ClusterService::CallbackService {
 public:
  // All outlive the server.
  ClusterService(const Coordinator& coordinator, const Gate& gate)
      : coordinator_(coordinator), gate_(gate) {}

  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override;
  grpc::ServerUnaryReactor* GetWorker(grpc::CallbackServerContext* context,
                                      const v1::GetWorkerRequest* request,
                                      v1::GetWorkerResponse* response) override;

 private:
  // Who holds which device, without the names of jobs that the caller may not see.
  Coordinator::Holders HoldersSeenBy(const grpc::ServerContextBase& context) const;

  const Coordinator& coordinator_;
  const Gate& gate_;
};

}  // namespace trainyard::controller
