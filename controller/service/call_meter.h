// Counts and times every call of the server, under the de facto metric names.

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
