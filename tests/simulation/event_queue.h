// The one thread of the simulation: a queue of events ordered by (simulated time, number), the
// clock that they move, the one generator that all chance comes from, and the trace of what
// happened. The same seed gives the same events, so the same hash.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/testing/fake_clock.h"

namespace trainyard::simulation {

// Not thread-safe.
class EventQueue {
 public:
  explicit EventQueue(uint64_t seed) : random_(seed) {}

  FakeClock& clock() { return clock_; }
  absl::Duration now() const { return clock_.Monotonic(); }

  void After(absl::Duration delay, std::function<void()> event);
  // Runs the next event. False: there is none before `limit`, which is now.
  bool RunOne(absl::Duration limit);
  uint64_t num_events() const { return num_events_; }

  uint64_t Below(uint64_t bound) { return random_() % bound; }
  bool Chance(double probability) { return double(random_() >> 11) * 0x1p-53 < probability; }
  absl::Duration Between(absl::Duration least, absl::Duration most);

  // A line of the trace; its bytes go into the hash, with the time.
  template <typename... Parts>
  void Trace(const Parts&... parts) {
    AddLine(absl::StrCat(parts...));
  }
  // What is said between processes, too long for a line.
  void Hash(const std::string& bytes);
  uint64_t hash() const { return hash_; }
  const std::deque<std::string>& tail() const { return tail_; }

  // The first violation of what must hold; the run ends with it.
  void Fail(const std::string& what);
  const std::string& failure() const { return failure_; }

 private:
  void AddLine(std::string line);

  FakeClock clock_;
  std::mt19937_64 random_;
  std::map<std::pair<absl::Duration, uint64_t>, std::function<void()>> events_;
  uint64_t last_number_ = 0;
  uint64_t num_events_ = 0;
  uint64_t hash_ = 0;
  std::deque<std::string> tail_;
  std::string failure_;
};

}  // namespace trainyard::simulation
