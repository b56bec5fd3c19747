// The network between the machines and the controller: streams whose messages arrive in order,
// late, and not at all while the way is cut.

#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/simulation/event_queue.h"
#include "tests/simulation/process.h"

namespace trainyard::simulation {

// The way between one machine and the controller. What is sent while it is cut arrives after it is
// open again, as TCP has it.
class Way {
 public:
  bool cut() const { return cut_; }
  void Cut() { cut_ = true; }
  void Open() {
    cut_ = false;
    for (const auto& resume : std::exchange(waiting_, {})) resume();
  }
  void WhenOpen(std::function<void()> resume) { waiting_.push_back(std::move(resume)); }

 private:
  bool cut_ = false;
  std::vector<std::function<void()>> waiting_;
};

// One direction of a stream. Lives as long as something is on its way.
template <typename Message>
class Pipe : public std::enable_shared_from_this<Pipe<Message>> {
 public:
  // Nothing: the stream's end. The receiver is called as long as `Close` is not.
  using Receiver = std::function<void(std::optional<Message>)>;

  Pipe(EventQueue& queue, Way& way, Receiver receiver)
      : queue_(queue), way_(way), receiver_(std::move(receiver)) {}

  void Send(std::optional<Message> message) {
    if (ended_ || closed_) return;
    ended_ = !message;
    const absl::Duration delay = queue_.Between(absl::Microseconds(200), absl::Milliseconds(20));
    due_ = std::max(due_, queue_.now() + delay);
    items_.push_back({due_, std::move(message)});
    Schedule();
  }
  // The receiver is gone, or reads no more.
  void Close() {
    closed_ = true;
    items_.clear();
  }
  // For now, or no longer.
  void Hold(bool hold) {
    held_ = hold;
    if (!held_) Schedule();
  }
  bool held() const { return held_; }

 private:
  struct Item {
    absl::Duration due;
    std::optional<Message> message;
  };

  void Schedule() {
    if (scheduled_ || items_.empty() || held_) return;
    scheduled_ = true;
    queue_.After(items_.front().due - queue_.now(), [self = this->shared_from_this()] {
      self->scheduled_ = false;
      self->Deliver();
    });
  }
  void Deliver() {
    if (way_.cut() && !items_.empty()) {
      scheduled_ = true;
      return way_.WhenOpen([self = this->shared_from_this()] {
        self->scheduled_ = false;
        self->Schedule();
      });
    }
    while (!closed_ && !held_ && !items_.empty() && items_.front().due <= queue_.now()) {
      std::optional<Message> message = std::move(items_.front().message);
      items_.pop_front();
      receiver_(std::move(message));
    }
    Schedule();
  }

  EventQueue& queue_;
  Way& way_;
  const Receiver receiver_;
  std::deque<Item> items_;
  absl::Duration due_;  // Of the newest item.
  bool scheduled_ = false, ended_ = false, closed_ = false, held_ = false;
};

}  // namespace trainyard::simulation
