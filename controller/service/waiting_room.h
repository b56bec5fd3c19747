// Accepted connections from addresses that owe too much (flood_guard.h). While an address owes,
// one of its newcomers is let in at a time, so that an honest peer there may still get in.

#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/file_descriptor.h"

namespace trainyard::controller {

struct Newcomer {
  FileDescriptor socket;
  int listener = -1;  // The descriptor that accepted the connection.
  std::string peer;
};

// Not thread-safe.
class WaitingRoom {
 public:
  explicit WaitingRoom(size_t most) : most_(most) {}

  // Closes the connection if too many wait, from its address or in all. Returns whether it waits.
  bool Add(Newcomer newcomer, absl::Duration now);
  // Returns those who may go in now: one of each address every 500 ms, and all of an address that
  // no longer owes; of these, those who have not hung up.
  std::vector<Newcomer> LetIn(absl::Duration now,
                              const std::function<bool(const std::string& peer)>& owes);
  size_t size() const { return size_; }
  // When to call LetIn again; infinite if nobody waits.
  absl::Duration next() const;

 private:
  struct FromOneAddress {
    absl::Duration next;  // When the first of them goes in.
    std::deque<Newcomer> newcomers;
  };

  const size_t most_;
  std::map<std::string, FromOneAddress> by_source_;
  size_t size_ = 0;
};

}  // namespace trainyard::controller
