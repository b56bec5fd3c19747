#include "worker/service/controller_stream.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "common/build_info.h"
#include "common/log.h"
#include "common/net/address.h"
#include "common/proto_fields.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "common/worker_fields.h"
#include "security/channel.h"
#include "security/controller_proof.h"
#include "trainyard/v1/worker.grpc.pb.h"
#include "worker/service/address.h"
#include "worker/service/convert.h"
#include "worker/service/reconnect.h"

namespace trainyard {
namespace {

constexpr uint32_t kProtocolVersion = 2;
constexpr absl::Duration kDefaultBeat = absl::Seconds(2);
constexpr absl::Duration kRegisterTimeout = absl::Seconds(30);
constexpr int kMaxMessageBytes = 16 << 20;

std::shared_ptr<grpc::Channel> Connect(const StreamOptions& options, const Credential& credential) {
  grpc::ChannelArguments arguments;
  // Not shorter than the least ping interval that the server allows, or the server would hang up.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // Channels share nothing, so only this class decides about pauses between attempts.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return Dial(options.controller, credential, arguments);
}

}  // namespace

// One stream, from its opening to its end. A thread of its own reads. The caller of Run writes.
class ControllerStream::Connection {
 public:
  Connection(const StreamOptions& options, const Credential& credential, Daemon& daemon)
      : options_(options),
        daemon_(daemon),
        stub_(v1::WorkerService::NewStub(Connect(options, credential))),
        stream_(stub_->Connect(&context_)) {}

  // Returns when the stream has ended.
  grpc::Status Run() {
    v1::ConnectRequest first;
    FillRegister(*first.mutable_register_());
    stream_->Write(first);
    std::thread reader([this] { Read(); });
    if (WaitForRegistered()) {
      LogInfo("registered", {{"controller", options_.controller}});
      daemon_.Connected();
      if (options_.on_registered) options_.on_registered();
      if (options_.on_sent) options_.on_sent(kDefaultBeat);
      Write();
      daemon_.Disconnected();
    }
    // Does not cancel a stream that the controller has ended. That would hide the reason, for
    // example that the controller does not speak this worker's version.
    if (!ended()) context_.TryCancel();
    reader.join();
    return stream_->Finish();
  }

  void Cancel() { context_.TryCancel(); }
  bool registered() {
    const MutexLock lock(mutex_);
    return registered_;
  }

 private:
  void FillRegister(v1::Register& message) {
    message.set_protocol_version(kProtocolVersion);
    message.set_worker_id(options_.worker_id);
    message.set_instance_id(options_.instance_id);
    message.set_hostname(ValidUtf8(options_.hostname));
    message.set_version(Version());
    for (const Device& device : daemon_.Devices()) *message.add_devices() = ToProto(device);
    registered_devices_ = message.devices_size();
    for (const std::string& root : options_.roots) message.add_roots(ValidUtf8(root));
    for (const RankStatus& status : daemon_.Register()) *message.add_running() = ToProto(status);
    message.set_metrics_url(options_.metrics_url);
    message.set_detach_seconds(uint32_t(absl::ToInt64Seconds(options_.detach)));
  }

  bool ended() {
    const MutexLock lock(mutex_);
    return ended_;
  }

  bool WaitForRegistered() {
    MutexLock lock(mutex_);
    const absl::Duration deadline = RealClock().Monotonic() + kRegisterTimeout;
    while (!registered_ && !ended_ && changed_.WaitUntil(mutex_, deadline)) continue;
    return registered_ && !ended_;
  }

  // Sends the outbox, and a beat whenever nothing else was sent for the time of a beat.
  void Write() {
    for (;;) {
      absl::Duration beat;
      {
        const MutexLock lock(mutex_);
        if (ended_) return;
        beat = beat_;
      }
      const std::optional<Outgoing> outgoing = daemon_.outbox().Next(beat);
      v1::ConnectRequest request;
      if (outgoing) {
        request = ToProto(*outgoing);
      } else {
        request.mutable_heartbeat();
      }
      if (!stream_->Write(request)) return;
      if (options_.on_sent) options_.on_sent(beat);
      // To report a GPU that was lost or has come back, the worker registers again.
      const size_t now = daemon_.Devices().size();
      if (now == size_t(registered_devices_)) continue;
      LogWarning("devices_changed", {{"offered", now}, {"before", registered_devices_}});
      return;
    }
  }

  void Read() {
    v1::ConnectResponse response;
    while (stream_->Read(&response)) Handle(response);
    {
      const MutexLock lock(mutex_);
      ended_ = true;
    }
    changed_.NotifyAll();
    daemon_.outbox().Wake();
  }

  void Handle(const v1::ConnectResponse& response) {
    if (response.has_registered()) {
      const MutexLock lock(mutex_);
      const uint32_t beat = response.registered().heartbeat_milliseconds();
      if (beat > 0) beat_ = absl::Milliseconds(beat);
      registered_ = true;
      changed_.NotifyAll();
    } else if (response.has_start_ranks()) {
      daemon_.StartRanks(FromProto(response.start_ranks()));
    } else if (response.has_stop_ranks()) {
      daemon_.StopRanks(FromProto(response.stop_ranks()));
    } else if (response.has_rendezvous_value()) {
      daemon_.Answer(ReadMessage<RendezvousValue>(response.rendezvous_value()));
    } else if (response.has_ack()) {
      daemon_.Acknowledge(response.ack().sequence());
    }
  }

  const StreamOptions& options_;
  Daemon& daemon_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ConnectRequest, v1::ConnectResponse>> stream_;
  Mutex mutex_;
  CondVar changed_;
  int registered_devices_ = 0;  // Used by the writing thread.
  bool registered_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration beat_ ABSL_GUARDED_BY(mutex_) = kDefaultBeat;
};

ControllerStream::ControllerStream(StreamOptions options, Address address, Daemon& daemon)
    : options_(std::move(options)),
      address_(std::move(address)),
      daemon_(daemon),
      thread_([this] { Run(); }) {}

absl::StatusOr<std::unique_ptr<ControllerStream>> ControllerStream::Create(StreamOptions options,
                                                                           Daemon& daemon) {
  ASSIGN_OR_RETURN(Address address, ParseAddress(options.controller));
  options.controller = address.ToString();
  return std::unique_ptr<ControllerStream>(
      new ControllerStream(std::move(options), std::move(address), daemon));
}

ControllerStream::~ControllerStream() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
    if (connection_ != nullptr) connection_->Cancel();
  }
  wake_.NotifyAll();
  thread_.join();
}

bool ControllerStream::ConnectOnce() {
  const absl::StatusOr<Credential> credential = options_.credential();
  if (!credential.ok()) {
    NoteLost(credential.status());
    return false;
  }
  Connection connection(options_, *credential, daemon_);
  {
    const MutexLock lock(mutex_);
    if (closing_) return false;
    connection_ = &connection;
  }
  const grpc::Status status = connection.Run();
  {
    const MutexLock lock(mutex_);
    connection_ = nullptr;
    if (connection.registered()) logged_.clear();
  }
  if (status.error_code() == grpc::UNAUTHENTICATED && options_.refused) options_.refused();
  const std::string& error = status.error_message();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  NoteLost(absl::Status(code, logged_.contains(code) ? error : ExplainProof(error, address_)));
  return connection.registered();
}

// Logs each kind of reason once in each outage, however many attempts fail. A controller that
// cannot be reached may run another release when it returns.
void ControllerStream::NoteLost(const absl::Status& why) {
  const MutexLock lock(mutex_);
  if (closing_ || !logged_.insert(why.code()).second) return;
  LogWarning(
      "controller_lost",
      {{"controller", options_.controller}, {"code", int(why.code())}, {"reason", why.message()}});
}

void ControllerStream::Run() {
  Reconnect reconnect(options_.first_pause, options_.longest_pause);
  for (;;) {
    const absl::Duration pause = reconnect.After(ConnectOnce());
    MutexLock lock(mutex_);
    if (closing_) return;
    const absl::Duration next = RealClock().Monotonic() + pause;
    while (!closing_ && wake_.WaitUntil(mutex_, next)) continue;
    if (closing_) return;
  }
}

}  // namespace trainyard
