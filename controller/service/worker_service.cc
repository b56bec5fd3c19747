#include "controller/service/worker_service.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "controller/service/bounds.h"
#include "controller/service/convert_job.h"
#include "controller/service/convert_worker.h"
#include "controller/service/stream_link.h"

namespace trainyard::controller {
namespace {

using Request = v1::ConnectRequest;

// Checks that `caller` may be this worker. A caller with a certificate may only be the worker on
// the host that the certificate names.
absl::Status CheckIdentity(const Principal& caller, const Registration& worker) {
  if (caller.worker_id.empty()) return absl::OkStatus();
  if (caller.worker_id == worker.worker_id && caller.name == worker.hostname) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat("wanted the worker ", caller.worker_id, " on the host ", caller.name,
                   ", as its certificate says, found the worker ", worker.worker_id,
                   " on the host ", worker.hostname,
                   ". If the host was renamed, start its worker with --join and a new joiner's "
                   "token, or give the host its old name; a copy of another worker's state needs "
                   "a --state of its own"));
}

// Reads one message at a time. Deletes itself when gRPC is done with it.
class WorkerStream final : public StreamLink::Reactor {
 public:
  WorkerStream(const WorkerService::Parts& parts, grpc::CallbackServerContext& context)
      : coordinator_(parts.coordinator),
        gate_(parts.gate),
        audit_(parts.audit),
        streams_(parts.streams),
        context_(context),
        link_(std::make_shared<StreamLink>(this, context,
                                           parts.users.UseOf(PeerOf(context.peer())))) {
    streams_.OnEnd(context_, [link = link_](const absl::Status& status) { link->Close(status); });
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      // The worker has sent its last message, or the stream broke.
      if (session_) coordinator_.Disconnect(*session_);
      link_->Close(absl::OkStatus());
      return;
    }
    // Checked for each message, so that a revocation also ends open streams.
    const absl::StatusOr<Principal> caller = gate_.CallerOf(context_);
    if (!caller.ok() && session_) coordinator_.Expel(*std::exchange(session_, std::nullopt));
    if (absl::Status status = caller.ok() ? Handle(*caller) : caller.status(); !status.ok()) {
      return link_->Close(std::move(status));
    }
    link_->Read(&request_);
  }
  void OnWriteDone(bool ok) override { link_->OnWriteDone(ok); }
  void OnCancel() override { link_->Close(absl::CancelledError("the stream was cancelled")); }
  void OnDone() override {
    if (session_) coordinator_.Disconnect(*session_);
    link_->OnDone();
    delete this;
  }

 private:
  absl::Status Handle(const Principal& caller) {
    if (!session_) return HandleRegister(caller);
    RETURN_IF_ERROR(ApplyBounds(request_));
    switch (request_.message_case()) {
      case Request::kHeartbeat:
        coordinator_.OnHeartbeat(*session_);
        break;
      case Request::kRankStatus:
        coordinator_.OnRankStatus(*session_, FromProto(request_.rank_status()), Durable());
        break;
      case Request::kStep:
        coordinator_.OnStep(*session_, FromProto(request_.step()), Durable());
        break;
      case Request::kCheckpoint:
        coordinator_.OnCheckpoint(*session_, ReadMessage<CheckpointReport>(request_.checkpoint()),
                                  Durable());
        break;
      case Request::kLog:
        coordinator_.OnLogs(*session_, ReadMessage<LogReport>(request_.log()));
        break;
      case Request::kRendezvousSet:
        coordinator_.OnRendezvousSet(*session_,
                                     ReadMessage<RendezvousValue>(request_.rendezvous_set()));
        break;
      case Request::kRendezvousGet:
        coordinator_.OnRendezvousGet(*session_,
                                     ReadMessage<RendezvousValue>(request_.rendezvous_get()));
        break;
      case Request::kDraining:
        coordinator_.OnDraining(*session_);
        break;
      case Request::kRegister:
        return absl::InvalidArgumentError("a second Register on one stream");
      case Request::MESSAGE_NOT_SET:  // A newer worker's message.
        coordinator_.OnUnknown(*session_, Durable());
        break;
    }
    return absl::OkStatus();
  }

  // Returns the callback that acknowledges this message once it is stored.
  Coordinator::Done Durable() {
    link_->Storing();
    return [link = link_, sequence = request_.sequence()](const absl::Status& status) {
      link->Stored(sequence, status);
    };
  }

  absl::Status HandleRegister(const Principal& caller) {
    if (!request_.has_register_()) {
      return absl::InvalidArgumentError("the first message on a worker's stream must be Register");
    }
    const absl::StatusOr<Session> session = Connect(caller, *request_.mutable_register_());
    if (session.ok()) session_ = *session;
    // Nobody waits for this record, because a registration repeats what the worker said when it
    // joined.
    AuditEntry entry = audit_.Entry(caller, "WorkerService.Connect", context_.peer());
    entry.target = request_.register_().worker_id();
    entry.detail = request_.register_().hostname();
    audit_.Write(std::move(entry), session.status(), {});
    return session.status();
  }

  absl::StatusOr<Session> Connect(const Principal& caller, v1::Register& request) {
    RETURN_IF_ERROR(streams_.Check(context_));
    RETURN_IF_ERROR(ApplyBounds(request));
    ASSIGN_OR_RETURN(Registration registration, FromProto(request));
    RETURN_IF_ERROR(CheckIdentity(caller, registration));
    registration.grant_id = caller.grant_id;
    return coordinator_.Connect(std::move(registration), link_);
  }

  Coordinator& coordinator_;
  const Gate& gate_;
  Audit& audit_;
  OpenStreams& streams_;
  grpc::CallbackServerContext& context_;  // gRPC owns it until OnDone.
  const std::shared_ptr<StreamLink> link_;
  Request request_;
  std::optional<Session> session_;  // Set once registered.
};

}  // namespace

StreamLink::Reactor* WorkerService::Connect(grpc::CallbackServerContext* context) {
  return new WorkerStream(parts_, *context);
}

}  // namespace trainyard::controller
