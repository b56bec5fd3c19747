// Ranks that are processes, connected over TCP by Gloo: one full mesh of connections, which all
// groups share, each with message tags of its own.
//
// Gloo carries bytes; the sums are ours, in rank order (reduce.h), so that results equal those of
// LocalWorld bit for bit. Large tensors take two passes, in each of which a rank sends and receives
// (size - 1) / size of the bytes: slices to the rank that sums them, sums back to all. Small ones
// take one, everything to everyone. Bytes move once both sides have posted them, whichever is
// first; if the two disagree about the size they never do, and both time out.
//
// A peer that dies is noticed when its connection closes, by the ranks that wait for it at once;
// one that hangs, when an operation takes longer than its timeout. Both throw
// DeviceError::kPeerLost and close this rank's connections, those of all groups, which is how the
// ranks that wait for this one notice.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/collective/rendezvous.h"
#include "kernels/collective/world.h"

namespace trainyard {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  std::string interface = "127.0.0.1";  // Address or device name to listen on.
  std::string name = "gloo";            // Of the world: prefix of its rendezvous keys.
  absl::Duration connect_timeout = absl::Minutes(2);  // Until all of a world or group have come.
  // Of one operation: above all that the slowest rank may do before it comes to it.
  absl::Duration timeout = absl::Minutes(5);
};

// Waits until all ranks are connected, and have shown each other that they know a secret that rank
// 0 puts into `rendezvous`. Errors: DEADLINE_EXCEEDED or UNAVAILABLE names the missing rank, or the
// one that is a stranger's; INVALID_ARGUMENT the interface; those of `rendezvous` as they are.
// `rendezvous` is used only within the call. Ignores SIGPIPE in the whole process, which Gloo
// needs. Destroying the result waits briefly for the peers to finish, too, unless it was aborted.
absl::StatusOr<std::unique_ptr<CollectiveWorld>> CreateGlooWorld(const GlooOptions& options,
                                                                 Rendezvous& rendezvous);

}  // namespace trainyard
