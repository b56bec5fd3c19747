// Connections that were accepted a short while ago, and whether the process keeps up with them.
//
// A TLS handshake costs a millisecond or two, and must be over in a few seconds. Whoever begins
// more of them than can be over by then finishes none: after a restart of the controller, thousands
// of workers would try again and again, and none would get in. So no connection is accepted as long
// as the bytes of many others wait to be read. Those wait in the kernel's queue, where they cost
// nothing. Peers that say nothing, or little, do not count: what they say is read at once.

#pragma once

#include <deque>

#include "absl/time/time.h"

namespace trainyard::controller {

// Not thread-safe.
class Newcomers {
 public:
  // `young`: how long a connection is one.
  explicit Newcomers(absl::Duration young) : young_(young) {}

  void Add(int fd, absl::Duration now) { accepted_.push_back({fd, now}); }
  // Whether at least `most` connections that are young have bytes that nobody has read.
  bool Crowded(size_t most, absl::Duration now);

 private:
  struct Accepted {
    int fd;  // May be closed by now, or another connection's.
    absl::Duration at;
  };

  const absl::Duration young_;
  std::deque<Accepted> accepted_;  // Oldest first.
};

// Whether the peer of a connection that was not read yet has closed its side.
bool PeerIsGone(int fd);

}  // namespace trainyard::controller
