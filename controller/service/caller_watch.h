// Tells OpenStreams when a stream begins and when it ends, and tells ConnectionUsers who calls by
// which connection.
//
// Must be the first of a server's interceptors. gRPC destroys those of a call in their order, and
// OpenStreams::Sweep runs all of them when it cancels a stream: they must be there until this one
// has taken the stream out.

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
