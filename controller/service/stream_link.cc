#include "controller/service/stream_link.h"

#include "controller/access/error.h"
#include "controller/service/convert_worker.h"

namespace trainyard::controller {

void StreamLink::Send(Order order) {
  v1::ConnectResponse message = ToProto(order);
  MutexLock lock(mutex_);
  if (close_) return;
  queued_bytes_ += message.ByteSizeLong();
  queue_.push_back(std::move(message));
  if (queue_.size() > kMostOrders || queued_bytes_ > kMostOrderBytes) {
    queue_.clear();
    close_ = absl::ResourceExhaustedError("the worker does not read its orders");
    // Without this, a write that the worker never takes would keep the stream from finishing.
    if (reactor_ != nullptr) context_.TryCancel();
  }
  Pump();
}

bool StreamLink::holding() const {
  MutexLock lock(mutex_);
  return !close_ && (held_ != nullptr || use_->unread);
}

void StreamLink::Read(v1::ConnectRequest* into) {
  MutexLock lock(mutex_);
  if (finished_) return;
  if (storing_ < kWindow) {
    reactor_->StartRead(into);
  } else {
    held_ = into;
  }
}

void StreamLink::Storing() {
  MutexLock lock(mutex_);
  ++storing_;
}

void StreamLink::Stored(uint64_t sequence, const absl::Status& status) {
  MutexLock lock(mutex_);
  --storing_;
  if (close_) return;
  if (status.ok() && sequence > 0) ack_ = std::max(ack_.value_or(0), sequence);
  Pump();
  if (held_ != nullptr) reactor_->StartRead(std::exchange(held_, nullptr));
}

void StreamLink::Close(absl::Status why) {
  MutexLock lock(mutex_);
  if (close_) return;
  close_ = std::move(why);
  Pump();
}

void StreamLink::OnWriteDone(bool ok) {
  MutexLock lock(mutex_);
  busy_ = false;
  if (!ok && !close_) close_ = absl::CancelledError("the worker went away");
  Pump();
}

void StreamLink::OnDone() {
  MutexLock lock(mutex_);
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
    queued_bytes_ -= writing_.ByteSizeLong();
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
