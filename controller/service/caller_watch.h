// Enters every stream among the open ones as it begins, and takes it out as it ends. Of every call
// it notes who makes it by which connection.

#pragma once

#include <grpcpp/grpcpp.h>

#include "controller/service/connection_users.h"
#include "controller/service/open_streams.h"

namespace trainyard::controller {

class CallerWatchFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  struct Parts {  // All outlive the server.
    const Gate& gate;
    OpenStreams& streams;
    ConnectionUsers& users;
  };
  explicit CallerWatchFactory(const Parts& parts) : parts_(parts) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override;

 private:
  const Parts parts_;
};

}  // namespace trainyard::controller
