// Serves WorkerService. Each worker has one bidirectional stream, whose reactor passes the worker's
// messages to the coordinator.

#pragma once

#include <grpcpp/grpcpp.h>

#include "controller/access/audit.h"
#include "controller/access/gate.h"
#include "controller/service/connection_users.h"
#include "controller/service/open_streams.h"
#include "controller/workers/coordinator.h"
#include "trainyard/v1/worker.grpc.pb.h"

namespace trainyard::controller {

class WorkerService final : public v1::WorkerService::CallbackService {
 public:
  // All outlive the server.
  struct Parts {
    Coordinator& coordinator;
    const Gate& gate;
    Audit& audit;
    OpenStreams& streams;
    const ConnectionUsers& users;
  };
  explicit WorkerService(const Parts& parts) : parts_(parts) {}

  grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>* Connect(
      grpc::CallbackServerContext* context) override;

 private:
  const Parts parts_;
};

}  // namespace trainyard::controller
