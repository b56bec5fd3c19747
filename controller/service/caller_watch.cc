#include "controller/service/caller_watch.h"

#include <optional>

namespace trainyard::controller {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::ServerRpcInfo;

class CallerWatch final : public grpc::experimental::Interceptor {
 public:
  CallerWatch(const Gate& gate, grpc::ServerContextBase& context)
      : gate_(gate), context_(context) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    const bool message =
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE) ||
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE);
    if (message && !StillHolds()) context_.TryCancel();
    methods->Proceed();
  }

 private:
  bool StillHolds() {
    const absl::StatusOr<Principal> caller = gate_.CallerOf(context_);
    if (!caller.ok()) return false;
    // gRPC hands over the request before the handler sees it.
    if (!first_) first_ = *caller;
    return caller->roles == first_->roles && caller->name_space == first_->name_space;
  }

  const Gate& gate_;
  grpc::ServerContextBase& context_;
  std::optional<Principal> first_;  // As the stream began.
};

}  // namespace

grpc::experimental::Interceptor* CallerWatchFactory::CreateServerInterceptor(ServerRpcInfo* info) {
  if (info->type() != ServerRpcInfo::Type::SERVER_STREAMING) return nullptr;
  return new CallerWatch(gate_, *info->server_context());  // gRPC owns it.
}

}  // namespace trainyard::controller
