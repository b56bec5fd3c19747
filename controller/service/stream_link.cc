#include "controller/service/stream_link.h"

#include "controller/service/convert_worker.h"
#include "controller/service/error.h"

namespace trainyard::controller {

void StreamLink::Send(Order order) {
  v1::ConnectResponse message = ToProto(order);
  std::lock_guard lock(mutex_);
  if (close_) return;
  queue_.push_back(std::move(message));
  Pump();
}

void StreamLink::Ack(uint64_t sequence) {
  std::lock_guard lock(mutex_);
  if (close_) return;
  ack_ = std::max(ack_.value_or(0), sequence);
  Pump();
}

void StreamLink::Close(absl::Status why) {
  std::lock_guard lock(mutex_);
  if (close_) return;
  close_ = std::move(why);
  Pump();
}

void StreamLink::OnWriteDone(bool ok) {
  std::lock_guard lock(mutex_);
  busy_ = false;
  if (!ok && !close_) close_ = absl::CancelledError("the worker went away");
  Pump();
}

void StreamLink::OnDone() {
  std::lock_guard lock(mutex_);
  reactor_ = nullptr;
  close_ = absl::CancelledError("done");
}

void StreamLink::Pump() {
  if (reactor_ == nullptr || busy_ || finished_) return;
  if (close_) {
    finished_ = true;
    reactor_->Finish(ToGrpc(*close_));
  } else if (!queue_.empty()) {
    writing_ = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    reactor_->StartWrite(&writing_);
  } else if (ack_) {
    writing_.Clear();
    writing_.mutable_ack()->set_sequence(*ack_);
    ack_.reset();
    busy_ = true;
    reactor_->StartWrite(&writing_);
  }
}

}  // namespace trainyard::controller
