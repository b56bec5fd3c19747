#include "controller/service/caller_watch.h"

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
    if (message && !gate_.CallerOf(context_).ok()) context_.TryCancel();
    methods->Proceed();
  }

 private:
  const Gate& gate_;
  grpc::ServerContextBase& context_;
};

}  // namespace

grpc::experimental::Interceptor* CallerWatchFactory::CreateServerInterceptor(ServerRpcInfo* info) {
  if (info->type() != ServerRpcInfo::Type::SERVER_STREAMING) return nullptr;
  return new CallerWatch(gate_, *info->server_context());  // gRPC owns it.
}

}  // namespace trainyard::controller
