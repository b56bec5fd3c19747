// Something that acts until it is killed, and can stand still for a while (SIGSTOP): what was due
// meanwhile happens when it goes on, in order.

#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "tests/simulation/event_queue.h"

namespace trainyard::simulation {

class Process {
 public:
  explicit Process(EventQueue& queue) : queue_(queue), state_(std::make_shared<State>()) {}
  ~Process() { Kill(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void After(absl::Duration delay, std::function<void()> action) {
    queue_.After(delay, [state = state_, action = std::move(action)] { Do(*state, action); });
  }
  // Now, or when it goes on.
  void Do(const std::function<void()>& action) { Do(*state_, action); }

  void Freeze() { state_->frozen = true; }
  void Thaw() {
    const std::shared_ptr<State> state = state_;  // An action may destroy this.
    state->frozen = false;
    while (state->alive && !state->frozen && !state->put_off.empty()) {
      const std::function<void()> action = std::move(state->put_off.front());
      state->put_off.pop_front();
      action();
    }
  }
  void Kill() { state_->alive = false; }
  bool alive() const { return state_->alive; }
  bool frozen() const { return state_->frozen; }
  bool acting() const { return alive() && !frozen(); }

 private:
  struct State {
    bool alive = true, frozen = false;
    std::deque<std::function<void()>> put_off;
  };
  static void Do(State& state, const std::function<void()>& action) {
    if (!state.alive) return;
    if (state.frozen || !state.put_off.empty()) return state.put_off.push_back(action);
    action();
  }

  EventQueue& queue_;
  const std::shared_ptr<State> state_;
};

}  // namespace trainyard::simulation
