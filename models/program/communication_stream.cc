#include "models/program/communication_stream.h"

#include <chrono>

#include "common/check.h"

namespace trainyard {
namespace {

double Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace

CommunicationStream::CommunicationStream(size_t capacity) : queue_(capacity) {
  loop_ = std::async(std::launch::async, [this] { Loop(); });
}

CommunicationStream::~CommunicationStream() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  posted_cv_.notify_one();
  if (loop_.valid()) loop_.wait();
}

CommunicationStream::Ticket CommunicationStream::Post(const Call& call) {
  if (posted_ >= queue_.size()) Wait(posted_ - queue_.size() + 1);
  {
    std::lock_guard lock(mutex_);
    queue_[posted_++ % queue_.size()] = &call;
  }
  posted_cv_.notify_one();
  return posted_;
}

void CommunicationStream::Wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  if (done_ >= ticket) return;
  const double begin = Now();
  done_cv_.wait(lock, [&] { return done_ >= ticket || ended_; });
  waited_ += Now() - begin;
  if (done_ >= ticket) return;
  lock.unlock();
  CHECK(loop_.valid()) << "the communication stream failed before";
  loop_.get();  // Throws what the call threw.
}

void CommunicationStream::Settle() noexcept {
  std::unique_lock lock(mutex_);
  done_cv_.wait(lock, [&] { return done_ >= posted_ || ended_; });
}

CommunicationStream::Seconds CommunicationStream::TakeSeconds() {
  std::lock_guard lock(mutex_);
  const Seconds seconds{.waited = waited_, .busy = busy_};
  waited_ = busy_ = 0;
  return seconds;
}

void CommunicationStream::Loop() {
  // Tells the waiting thread that nothing more will be done, however the loop ends.
  struct End {
    CommunicationStream& stream;
    ~End() {
      std::lock_guard lock(stream.mutex_);
      stream.ended_ = true;
      stream.done_cv_.notify_one();
    }
  } end{*this};

  Exec exec;
  std::unique_lock lock(mutex_);
  while (true) {
    posted_cv_.wait(lock, [this] { return done_ < posted_ || stop_; });
    if (done_ == posted_) return lock.unlock();
    const Call& call = *queue_[done_ % queue_.size()];
    lock.unlock();
    const double begin = Now();
    call(exec);
    const double seconds = Now() - begin;
    lock.lock();
    busy_ += seconds;
    ++done_;
    done_cv_.notify_one();
  }
}

}  // namespace trainyard
