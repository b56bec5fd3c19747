#include "controller/service/cluster_service.h"

#include "absl/strings/str_cat.h"
#include "controller/access/error.h"
#include "controller/service/convert_worker.h"
#include "controller/service/reply.h"

namespace trainyard::controller {

Coordinator::Holders ClusterService::HoldersSeenBy(const grpc::ServerContextBase& context) const {
  const absl::StatusOr<Principal> caller = gate_.CallerOf(context);
  return coordinator_.DeviceHolders(caller.ok() ? caller->name_space : kNoNamespace);
}

grpc::ServerUnaryReactor* ClusterService::ListWorkers(grpc::CallbackServerContext* context,
                                                      const v1::ListWorkersRequest*,
                                                      v1::ListWorkersResponse* response) {
  return Reply(context, [&] {
    const Coordinator::Holders holders = HoldersSeenBy(*context);
    for (const Worker& worker : coordinator_.Workers()) {
      *response->add_workers() = ToProto(worker, holders);
    }
    return grpc::Status::OK;
  });
}

grpc::ServerUnaryReactor* ClusterService::GetWorker(grpc::CallbackServerContext* context,
                                                    const v1::GetWorkerRequest* request,
                                                    v1::GetWorkerResponse* response) {
  return Reply(context, [&] {
    const Coordinator::Holders holders = HoldersSeenBy(*context);
    for (const Worker& worker : coordinator_.Workers()) {
      if (worker.registration.worker_id != request->worker_id()) continue;
      *response->mutable_worker() = ToProto(worker, holders);
      return grpc::Status::OK;
    }
    return ToGrpc(absl::NotFoundError(absl::StrCat("no worker '", request->worker_id(), "'")),
                  "trainyard.v1.Worker", request->worker_id());
  });
}

}  // namespace trainyard::controller
