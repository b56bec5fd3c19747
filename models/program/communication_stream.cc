#include "models/program/communication_stream.h"

#include "common/check.h"

namespace trainyard {
CommunicationStream::CommunicationStream(size_t capacity, const Backend& backend,
                                         const Exec& compute)
    : compute_(compute), exec_(backend.NewExec(1)), queue_(capacity) {
  for (Posted& posted : queue_) {
    posted.after = backend.NewEvent();
    posted.done = backend.NewEvent();
  }
  loop_ = std::async(std::launch::async, [this] { Loop(); });
}

CommunicationStream::~CommunicationStream() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  posted_cv_.NotifyOne();
  if (loop_.valid()) loop_.wait();
}

CommunicationStream::Ticket CommunicationStream::Post(const Call& call) {
  const Ticket ticket = posted() + 1;
  if (ticket > queue_.size()) WaitUntilGiven(ticket - queue_.size());
  // The entry is free: the loop has launched the call that was there.
  Posted& posted = queue_[(ticket - 1) % queue_.size()];
  posted.call = &call;
  posted.after->Record(compute_);
  {
    MutexLock lock(mutex_);
    posted_ = ticket;
  }
  posted_cv_.NotifyOne();
  return ticket;
}

void CommunicationStream::Wait(Ticket ticket) {
  if (awaited_ >= ticket) return;
  if (observer_ != nullptr) observer_->BeginWait();
  WaitUntilGiven(ticket);
  // The event may be that of a later call by now. Waiting for a later call is correct, too, because
  // calls end in order.
  queue_[(ticket - 1) % queue_.size()].done->Await(compute_);
  awaited_ = ticket;
  if (observer_ != nullptr) observer_->EndWait();
}

void CommunicationStream::WaitUntilGiven(Ticket ticket) {
  MutexLock lock(mutex_);
  while (given_ < ticket && !ended_) given_cv_.Wait(mutex_);
  if (given_ >= ticket) return;
  lock.Unlock();
  CHECK(loop_.valid()) << "the communication stream failed before";
  loop_.get();  // Throws what the call threw.
}

void CommunicationStream::Settle() noexcept {
  MutexLock lock(mutex_);
  while (given_ < posted_ && !ended_) given_cv_.Wait(mutex_);
  if (given_ == 0) return;
  const Posted& last = queue_[(given_ - 1) % queue_.size()];
  lock.Unlock();
  last.done->SecondsSince(*last.after);  // Blocks until the device is there.
}

void CommunicationStream::Loop() {
  // Tells the waiting thread that no more calls will run, however the loop ends.
  struct End {
    CommunicationStream& stream;
    ~End() {
      MutexLock lock(stream.mutex_);
      stream.ended_ = true;
      stream.given_cv_.NotifyOne();
    }
  } end{*this};

  MutexLock lock(mutex_);
  while (true) {
    while (given_ >= posted_ && !stop_) posted_cv_.Wait(mutex_);
    if (given_ == posted_) return lock.Unlock();
    const Posted& posted = queue_[given_ % queue_.size()];
    lock.Unlock();
    posted.after->Await(exec_);
    (*posted.call)(exec_);
    posted.done->Record(exec_);
    lock.Lock();
    ++given_;
    given_cv_.NotifyOne();
  }
}

}  // namespace trainyard
