#include "tests/simulation/event_queue.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/rng.h"

namespace trainyard::simulation {
namespace {

constexpr size_t kTailLines = 400;

}  // namespace

void EventQueue::After(absl::Duration delay, std::function<void()> event) {
  const absl::Duration when = now() + std::max(delay, absl::ZeroDuration());
  events_.emplace(std::make_pair(when, ++last_number_), std::move(event));
}

bool EventQueue::RunOne(absl::Duration limit) {
  if (events_.empty() || events_.begin()->first.first > limit) {
    clock_.Advance(std::max(limit - now(), absl::ZeroDuration()));
    return false;
  }
  auto next = events_.extract(events_.begin());
  clock_.Advance(next.key().first - now());
  ++num_events_;
  next.mapped()();
  return true;
}

absl::Duration EventQueue::Between(absl::Duration least, absl::Duration most) {
  const int64_t span = absl::ToInt64Nanoseconds(most - least);
  return least + absl::Nanoseconds(span <= 0 ? 0 : int64_t(Below(uint64_t(span))));
}

void EventQueue::Hash(const std::string& bytes) {
  hash_ = Mix(hash_ ^ bytes.size());
  for (const char c : bytes) hash_ = (hash_ ^ uint8_t(c)) * 0x100000001b3u;  // FNV-1a.
}

void EventQueue::AddLine(std::string line) {
  tail_.push_back(absl::StrFormat("%10.4f %s", absl::ToDoubleSeconds(now()), line));
  Hash(tail_.back());
  if (tail_.size() > kTailLines) tail_.pop_front();
}

void EventQueue::Fail(const std::string& what) {
  if (!failure_.empty()) return;
  failure_ = what;
  Trace("VIOLATION ", what);
}

}  // namespace trainyard::simulation
