#include "controller/service/caller_watch.h"

#include <string>

#include "absl/strings/match.h"

namespace trainyard::controller {
namespace {

using grpc::experimental::ServerRpcInfo;

class CallerWatch final : public grpc::experimental::Interceptor {
 public:
  CallerWatch(const CallerWatchFactory::Parts& parts, ServerRpcInfo& call)
      : parts_(parts),
        context_(*call.server_context()),
        stream_(call.type() != ServerRpcInfo::Type::UNARY),
        ours_(absl::StartsWith(call.method(), "/trainyard.")) {}
  ~CallerWatch() override {
    if (begun_ && stream_) parts_.streams.Remove(context_);
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    // First, before the handler sees the call. Later ones may come from several threads at once.
    if (!begun_) {
      begun_ = true;
      Begin();
    }
    methods->Proceed();
  }

 private:
  void Begin() {
    const std::string peer = PeerOf(context_.peer());
    if (parts_.users.Of(peer).empty()) {
      const absl::StatusOr<Principal> caller = parts_.gate.CallerOf(context_);
      if (caller.ok()) parts_.users.Used(peer, caller->account());
    }
    // Our own handlers ask for the outcome, and say it to the caller.
    if (stream_ && !parts_.streams.Add(context_) && !ours_) context_.TryCancel();
  }

  const CallerWatchFactory::Parts& parts_;
  grpc::ServerContextBase& context_;
  const bool stream_, ours_;
  bool begun_ = false;
};

}  // namespace

grpc::experimental::Interceptor* CallerWatchFactory::CreateServerInterceptor(ServerRpcInfo* info) {
  return new CallerWatch(parts_, *info);  // gRPC owns it.
}

}  // namespace trainyard::controller
