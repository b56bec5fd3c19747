#include "controller/service/executor.h"

#include <utility>

namespace trainyard::controller {

Executor::Executor() : thread_([this] { Run(); }) {}

Executor::~Executor() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyOne();
  thread_.join();
}

void Executor::Post(const std::string& whose, std::function<void()> work) {
  {
    MutexLock lock(mutex_);
    PostLocked(whose, std::move(work));
  }
  changed_.NotifyOne();
}

bool Executor::Offer(const std::string& whose, size_t most, std::function<void()> work) {
  {
    MutexLock lock(mutex_);
    if (waiting_ >= most) return false;
    PostLocked(whose, std::move(work));
  }
  changed_.NotifyOne();
  return true;
}

void Executor::PostLocked(const std::string& whose, std::function<void()> work) {
  auto& queue = queues_[whose];
  if (queue.empty()) turns_.push_back(whose);
  queue.push_back(std::move(work));
  ++waiting_;
}

void Executor::Run() {
  for (;;) {
    std::function<void()> work;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && turns_.empty()) changed_.Wait(mutex_);
      if (turns_.empty()) return;
      const auto queue = queues_.find(turns_.front());
      work = std::move(queue->second.front());
      queue->second.pop_front();
      --waiting_;
      // A caller with more work goes to the end of the line.
      if (!queue->second.empty()) turns_.push_back(turns_.front());
      turns_.pop_front();
      if (queue->second.empty()) queues_.erase(queue);
    }
    work();
  }
}

}  // namespace trainyard::controller
