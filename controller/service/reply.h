// Finishes a unary call with the handler's status.

#pragma once

#include <grpcpp/grpcpp.h>

#include <utility>

namespace trainyard::controller {

// For handlers that answer at once and return a grpc::Status.
template <typename Handler>
grpc::ServerUnaryReactor* Reply(grpc::CallbackServerContext* context, Handler&& handler) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(std::forward<Handler>(handler)());
  return reactor;
}

}  // namespace trainyard::controller
