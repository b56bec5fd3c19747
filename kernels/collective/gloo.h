// Ranks that are processes, connected over TCP by Gloo. All groups share one full mesh of
// connections; each group has its own message tags.
//
// Gloo carries bytes. The sums are computed here, in rank order (reduce.h), so results equal those
// of LocalWorld bit for bit. Large tensors take two passes, in each of which a rank sends and
// receives (size - 1) / size of the bytes: slices to the rank that sums them, and sums back to all.
// Small tensors take one pass, everything to everyone. Bytes move once both sides have posted them,
// whichever is first. If the two sides disagree about the size, bytes never move, and both sides
// time out.
//
// If a peer dies, its connections close, and the ranks that wait for it notice at once. If a peer
// hangs, an operation takes longer than its timeout. Both throw DeviceError::kPeerLost and close
// this rank's connections for all groups, so that the ranks that wait for this one notice, too.

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
  std::string name = "gloo";            // Name of the world; prefix of its rendezvous keys.
  absl::Duration connect_timeout = absl::Minutes(2);  // Until all ranks of a world or group come.
  // For one operation. Most of it is the time until the slowest rank calls the operation.
  absl::Duration timeout = absl::Minutes(5);
};

// Waits until all ranks are connected, and have proved to each other that they know a secret that
// rank 0 puts into `rendezvous`. `rendezvous` is used only within the call. Ignores SIGPIPE in the
// whole process, because Gloo needs this. The destructor of the result waits briefly for the peers
// to finish, unless the world was aborted. Errors:
// - DEADLINE_EXCEEDED or UNAVAILABLE names the missing rank, or a rank that does not know the
//   secret.
// - INVALID_ARGUMENT names the interface.
// - Errors of `rendezvous` are returned unchanged.
absl::StatusOr<std::unique_ptr<CollectiveWorld>> CreateGlooWorld(const GlooOptions& options,
                                                                 Rendezvous& rendezvous);

}  // namespace trainyard
