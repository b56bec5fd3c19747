#include "controller/service/waiting_room.h"

#include <algorithm>
#include <utility>

#include "controller/service/connection_users.h"
#include "controller/service/newcomers.h"

namespace trainyard::controller {
namespace {

constexpr absl::Duration kEvery = absl::Milliseconds(500);
constexpr size_t kMostOfOne = 16;

}  // namespace

bool WaitingRoom::Add(Newcomer newcomer, absl::Duration now) {
  if (size_ == most_) return false;
  const auto [it, first] = by_source_.try_emplace(SourceOf(newcomer.peer));
  FromOneAddress& from = it->second;
  if (first) from.next = now;
  if (from.newcomers.size() == kMostOfOne) return false;
  from.newcomers.push_back(std::move(newcomer));
  ++size_;
  return true;
}

std::vector<Newcomer> WaitingRoom::LetIn(absl::Duration now,
                                         const std::function<bool(const std::string& peer)>& owes) {
  std::vector<Newcomer> in;
  for (auto it = by_source_.begin(); it != by_source_.end();) {
    FromOneAddress& from = it->second;
    const bool all = !from.newcomers.empty() && !owes(from.newcomers.front().peer);
    while (!from.newcomers.empty() && (all || now >= from.next)) {
      Newcomer newcomer = std::move(from.newcomers.front());
      from.newcomers.pop_front();
      --size_;
      if (PeerIsGone(newcomer.socket.get())) continue;
      from.next = now + kEvery;
      in.push_back(std::move(newcomer));
    }
    // Until then, the address is remembered: its next newcomer waits for its turn.
    const bool forget = from.newcomers.empty() && now >= from.next;
    it = forget ? by_source_.erase(it) : std::next(it);
  }
  return in;
}

absl::Duration WaitingRoom::next() const {
  absl::Duration next = absl::InfiniteDuration();
  for (const auto& [source, from] : by_source_) next = std::min(next, from.next);
  return next;
}

}  // namespace trainyard::controller
