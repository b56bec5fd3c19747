// ClusterService over the coordinator.

#pragma once

#include <grpcpp/grpcpp.h>

#include "controller/workers/coordinator.h"
#include "trainyard/v1/cluster.grpc.pb.h"

namespace trainyard::controller {

class ClusterService final : public v1::ClusterService::CallbackService {
 public:
  explicit ClusterService(Coordinator& coordinator) : coordinator_(coordinator) {}

  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override;
  grpc::ServerUnaryReactor* GetWorker(grpc::CallbackServerContext* context,
                                      const v1::GetWorkerRequest* request,
                                      v1::GetWorkerResponse* response) override;

 private:
  Coordinator& coordinator_;  // Outlives the server.
};

}  // namespace trainyard::controller
