// Counts and times every call of the server. The metrics have the names that gRPC servers commonly
// use.

#pragma once

#include <grpcpp/support/server_interceptor.h>

#include "controller/metrics.h"

namespace trainyard::controller {

class CallMeterFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallMeterFactory(ControllerMetrics& metrics) : metrics_(metrics) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override;

 private:
  ControllerMetrics& metrics_;  // Outlives the server.
};

}  // namespace trainyard::controller
