// Ends streams of answers whose caller is not let in any more, or may do something else than when
// the stream began: what is revoked or changed counts for open streams, too, when their next
// message goes. WorkerService does so for its own.

#pragma once

#include <grpcpp/grpcpp.h>

#include "controller/access/gate.h"

namespace trainyard::controller {

class CallerWatchFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallerWatchFactory(const Gate& gate) : gate_(gate) {}  // Outlives the server.
  // Null for other calls.
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override;

 private:
  const Gate& gate_;
};

}  // namespace trainyard::controller
