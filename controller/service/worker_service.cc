#include "controller/service/worker_service.h"

#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "controller/service/convert_job.h"
#include "controller/service/convert_worker.h"
#include "controller/service/stream_link.h"

namespace trainyard::controller {
namespace {

using Request = v1::ConnectRequest;

bool IsLoopback(const std::string& peer) {
  return absl::StartsWith(peer, "ipv4:127.") || absl::StartsWith(peer, "ipv6:%5B::1%5D") ||
         absl::StartsWith(peer, "ipv6:[::1]") || absl::StartsWith(peer, "unix:");
}

// Reads one message at a time; owns itself until gRPC is done with it.
class WorkerStream final : public StreamLink::Reactor {
 public:
  WorkerStream(Coordinator& coordinator, std::string peer)
      : coordinator_(coordinator),
        peer_(std::move(peer)),
        link_(std::make_shared<StreamLink>(this)) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      // The worker has said its last, or the stream broke.
      if (session_) coordinator_.Disconnect(*session_);
      link_->Close(absl::OkStatus());
      return;
    }
    if (absl::Status status = Handle(); !status.ok()) return link_->Close(std::move(status));
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
  absl::Status Handle() {
    if (!session_) return HandleRegister();
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
        coordinator_.OnCheckpoint(*session_, FromProto(request_.checkpoint()), Durable());
        break;
      case Request::kLog:
        HandleLog(request_.log());
        break;
      case Request::kRendezvousSet: {
        const auto& m = request_.rendezvous_set();
        coordinator_.OnRendezvousSet(*session_, {m.job_id(), m.epoch(), m.key(), m.value()});
        break;
      }
      case Request::kRendezvousGet: {
        const auto& m = request_.rendezvous_get();
        coordinator_.OnRendezvousGet(*session_, {m.job_id(), m.epoch(), m.key(), ""});
        break;
      }
      case Request::kDraining:
        coordinator_.OnDraining(*session_);
        break;
      case Request::kRegister:
        return absl::InvalidArgumentError("a second Register on one stream");
      case Request::MESSAGE_NOT_SET:  // A newer worker's message: it lives without our answer.
        coordinator_.OnHeartbeat(*session_);
        break;
    }
    return absl::OkStatus();
  }

  // For what this message has to say.
  Coordinator::Done Durable() {
    link_->Storing();
    return [link = link_, sequence = request_.sequence()](const absl::Status& status) {
      link->Stored(sequence, status);
    };
  }

  absl::Status HandleRegister() {
    if (!request_.has_register_()) {
      return absl::InvalidArgumentError("the first message on a worker's stream must be Register");
    }
    absl::StatusOr<Registration> registration = FromProto(request_.register_());
    if (!registration.ok()) return registration.status();
    registration->insecure = !IsLoopback(peer_);
    const absl::StatusOr<Session> session = coordinator_.Connect(*std::move(registration), link_);
    if (session.ok()) session_ = *session;
    return session.status();
  }

  void HandleLog(const v1::LogReport& report) {
    std::vector<LogRecord> lines;
    for (const v1::LogLine& line : report.lines()) lines.push_back(FromProto(line));
    coordinator_.OnLogs(*session_, report.job_id(), lines);
  }

  Coordinator& coordinator_;
  const std::string peer_;
  const std::shared_ptr<StreamLink> link_;
  Request request_;
  std::optional<Session> session_;  // Once registered.
};

}  // namespace

StreamLink::Reactor* WorkerService::Connect(grpc::CallbackServerContext* context) {
  return new WorkerStream(coordinator_, context->peer());
}

}  // namespace trainyard::controller
