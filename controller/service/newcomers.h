// The connections that were accepted in the last seconds, and whether the process keeps up with
// them.
//
// A TLS handshake takes one or two milliseconds of a core, and gRPC ends it after a few seconds. A
// process that begins too many handshakes at once finishes none of them in time. After a restart of
// the controller, thousands of workers would try again and again, and none would get in.
//
// So the acceptor accepts no connection while many young connections have bytes that nobody has
// read. The other peers wait in the kernel's queue, where they cost nothing. Peers that send
// nothing or little do not count, because the process reads their bytes at once.

#pragma once

#include <map>

#include "absl/time/time.h"

namespace trainyard::controller {

// Not thread-safe.
class Newcomers {
 public:
  // `young`: for how long a connection counts.
  explicit Newcomers(absl::Duration young) : young_(young) {}

  void Add(int fd, absl::Duration now) { accepted_[fd] = now; }
  // Returns whether at least `most` young connections have bytes that nobody has read.
  bool Crowded(size_t most, absl::Duration now);

 private:
  const absl::Duration young_;
  // When each descriptor was last given to a connection. The descriptor may be closed by now, or
  // may name something else.
  std::map<int, absl::Duration> accepted_;
};

// Returns whether the peer has closed its side of the connection. Nothing may have been read yet.
bool PeerIsGone(int fd);

}  // namespace trainyard::controller
