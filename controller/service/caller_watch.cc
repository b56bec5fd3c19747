#include "controller/service/caller_watch.h"

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "google/protobuf/message_lite.h"

namespace trainyard::controller {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::ServerRpcInfo;

// What a call takes on the wire beside its messages: metadata, among it a token that is sent again
// with each call.
constexpr uint64_t kCallOverhead = 2 << 10;
// The headers of a message, of its frames, and of their TLS records.
constexpr uint64_t kMessageOverhead = 64;

class CallerWatch final : public grpc::experimental::Interceptor {
 public:
  CallerWatch(const CallerWatchFactory::Parts& parts, ServerRpcInfo& call)
      : parts_(parts),
        context_(*call.server_context()),
        stream_(call.type() != ServerRpcInfo::Type::UNARY),
        ours_(absl::StartsWith(call.method(), "/trainyard.")) {}
  ~CallerWatch() override {
    if (begun_ && stream_) parts_.streams.Remove(context_);
    if (begun_) ++use_->calls_ended;
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    // First, before the handler sees the call. Later ones may come from several threads at once.
    if (!begun_) {
      begun_ = true;
      Begin();
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      use_->useful_bytes += kMessageOverhead + SizeOf(methods->GetRecvMessage());
    }
    methods->Proceed();
  }

 private:
  // Of a message that came, or null. Only our own services are known to use messages of protobuf.
  size_t SizeOf(const void* message) const {
    if (message == nullptr || !ours_) return 0;
    return static_cast<const google::protobuf::MessageLite*>(message)->ByteSizeLong();
  }

  void Begin() {
    const std::string peer = PeerOf(context_.peer());
    use_ = parts_.users.UseOf(peer);
    use_->useful_bytes += kCallOverhead;
    ++use_->calls_begun;
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
  std::shared_ptr<ConnectionUse> use_;
};

}  // namespace

grpc::experimental::Interceptor* CallerWatchFactory::CreateServerInterceptor(ServerRpcInfo* info) {
  return new CallerWatch(parts_, *info);  // gRPC owns it.
}

}  // namespace trainyard::controller
