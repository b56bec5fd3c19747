#include "tests/simulation/controller_end.h"

#include "common/proto_fields.h"
#include "common/worker_fields.h"
#include "controller/service/convert_worker.h"

namespace trainyard::simulation {

void ControllerEnd::Send(controller::Order order) {
  if (!closed_) down_->Send(controller::ToProto(order));
}

void ControllerEnd::Close(absl::Status why) {
  if (closed_) return;
  closed_ = true;
  controller_.queue_.Trace("controller closes a stream: ", why.message());
  down_->Send(std::nullopt);
  up_->Close();
}

void ControllerEnd::Die() {
  closed_ = true;
  down_->Send(std::nullopt);
  up_->Close();
}

void ControllerEnd::Receive(const std::optional<v1::ConnectRequest>& request) {
  if (closed_) return;
  if (!request) {
    if (session_) controller_.coordinator().Disconnect(*session_);
    return Close(absl::OkStatus());
  }
  if (const absl::Status status = Handle(*request); !status.ok()) Close(status);
}

controller::Coordinator::Done ControllerEnd::Durable(const v1::ConnectRequest& request) {
  if (++storing_ >= kWindow) up_->Hold(true);
  return [self = shared_from_this(), request](const absl::Status& status) {
    --self->storing_;
    if (self->closed_) return;
    if (status.ok()) {
      self->controller_.watch_.acknowledged(request);
      v1::ConnectResponse ack;
      ack.mutable_ack()->set_sequence(request.sequence());
      self->down_->Send(ack);
    }
    if (self->up_->held()) self->up_->Hold(false);
  };
}

absl::Status ControllerEnd::Handle(const v1::ConnectRequest& request) {
  using Request = v1::ConnectRequest;
  using controller::FromProto;
  controller::Coordinator& coordinator = controller_.coordinator();
  if (!session_) {
    absl::StatusOr<controller::Registration> registration = FromProto(request.register_());
    if (!registration.ok()) return registration.status();
    const auto session = coordinator.Connect(*std::move(registration), shared_from_this());
    if (session.ok()) session_ = *session;
    return session.status();
  }
  const double refused = controller_.NumRefused();
  switch (request.message_case()) {
    case Request::kRankStatus:
      coordinator.OnRankStatus(*session_, FromProto(request.rank_status()), Durable(request));
      break;
    case Request::kStep:
      coordinator.OnStep(*session_, FromProto(request.step()), Durable(request));
      break;
    case Request::kCheckpoint:
      coordinator.OnCheckpoint(*session_, ReadMessage<CheckpointReport>(request.checkpoint()),
                               Durable(request));
      break;
    case Request::kRendezvousSet:
      coordinator.OnRendezvousSet(*session_,
                                  ReadMessage<RendezvousValue>(request.rendezvous_set()));
      break;
    case Request::kRendezvousGet:
      coordinator.OnRendezvousGet(*session_,
                                  ReadMessage<RendezvousValue>(request.rendezvous_get()));
      break;
    case Request::kDraining:
      coordinator.OnDraining(*session_);
      break;
    default:
      coordinator.OnHeartbeat(*session_);
  }
  if (controller_.NumRefused() > refused) controller_.watch_.refused(request);
  controller_.watch_.heard(request);
  return absl::OkStatus();
}

}  // namespace trainyard::simulation
