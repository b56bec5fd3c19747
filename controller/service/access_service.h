// AccessService: who the gate takes a caller for.

#pragma once

#include <grpcpp/grpcpp.h>

#include "controller/access/gate.h"
#include "trainyard/v1/access.grpc.pb.h"

namespace trainyard::controller {

class AccessService final : public v1::AccessService::CallbackService {
 public:
  explicit AccessService(const Gate& gate) : gate_(gate) {}

  grpc::ServerUnaryReactor* WhoAmI(grpc::CallbackServerContext* context,
                                   const v1::WhoAmIRequest* request,
                                   v1::WhoAmIResponse* response) override;

 private:
  const Gate& gate_;  // Outlives the server.
};

}  // namespace trainyard::controller
